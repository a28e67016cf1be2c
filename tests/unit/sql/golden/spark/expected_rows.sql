SELECT `id`, `name`
FROM (SELECT 1)
WHERE `__op` <> 'delete'
