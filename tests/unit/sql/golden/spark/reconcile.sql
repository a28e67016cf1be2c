SELECT
  count_if(e.`__expected` IS NULL) AS `unknown`,
  count_if(NOT e.`__expected` AND NOT e.`__may`) AS `deleted`
  , count_if(e.`__expected` AND NOT t.`id` <=> e.`id`) AS `differs_0`
  , count_if(e.`__expected` AND NOT t.`name` <=> e.`name`) AS `differs_1`
FROM `f` AS t
LEFT JOIN `e` AS e
ON t.`carrier` <=> e.`carrier` AND t.`flight` <=> e.`flight`
