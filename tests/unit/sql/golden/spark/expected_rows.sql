SELECT `id`, `name`, `__op` <> 'delete' AS `__expected`
FROM (SELECT 1)
