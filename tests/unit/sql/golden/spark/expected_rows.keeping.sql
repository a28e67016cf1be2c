SELECT `id`, `name`, `__kept`
FROM (SELECT 1)
WHERE `__op` <> 'delete'
