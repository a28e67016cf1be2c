SELECT `id`, `name`, `__op` NOT IN ('delete', 'stays') AS `__expected`, `__op` = 'stays' AS `__may`, `__kept`
FROM (SELECT 1)
