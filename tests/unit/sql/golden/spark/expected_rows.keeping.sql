SELECT `id`, `name`, `__op` <> 'delete' AS `__expected`, `__kept`
FROM (SELECT 1)
