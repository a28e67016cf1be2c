SELECT
  count_if(e.`__expected` IS NULL AND s.`first` IS NOT NULL) AS `unknown`,
  count_if(NOT e.`__expected` AND NOT e.`__may`) AS `deleted`
  , count_if(e.`__expected` AND NOT t.`id` <=> e.`id`) AS `differs_0`
FROM `f` AS t
LEFT JOIN `e` AS e
ON t.`_t` <=> e.`_t` AND t.`_p` <=> e.`_p` AND t.`_o` <=> e.`_o`
LEFT JOIN `s` AS s
ON t.`_t` = s.`topic` AND t.`_p` = s.`partition`
  AND t.`_o` >= s.`first` AND t.`_o` < s.`end`
