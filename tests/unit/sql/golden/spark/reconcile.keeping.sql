SELECT
  count(*) AS `rows`,
  count_if(e.`__expected` IS NULL) AS `unknown`
  , count_if(e.`__expected` AND NOT t.`id` <=> e.`id`) AS `differs_0`
  , count_if(e.`__expected` AND NOT t.`name` <=> e.`name` AND NOT e.`__kept`.`c0`) AS `differs_1`
FROM `f` AS t
LEFT JOIN (SELECT *, true AS `__expected` FROM `e`) AS e
ON t.`carrier` <=> e.`carrier` AND t.`flight` <=> e.`flight`
