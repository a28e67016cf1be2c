SELECT `id`, `name`, `__op` NOT IN ('delete', 'stays') AS `__expected`, `__op` = 'stays' AS `__may`
FROM (SELECT 1)
