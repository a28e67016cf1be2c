SELECT s.*
FROM (SELECT 1) AS s
LEFT ANTI JOIN `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
ON t.`_topic` = s.`__kafka`.`topic`
  AND t.`__partition` = s.`__kafka`.`partition`
  AND t.`_offset` = s.`__kafka`.`offset`
  AND CASE t.`_topic` WHEN :recreated_0 THEN IF(t.`_batch` >= 2, 1, 0) + IF(t.`_batch` >= 7, 1, 0) WHEN :recreated_1 THEN IF(t.`_batch` >= 3, 1, 0) ELSE 0 END = CASE s.`__kafka`.`topic` WHEN :recreated_0 THEN IF(s.`__batch` >= 2, 1, 0) + IF(s.`__batch` >= 7, 1, 0) WHEN :recreated_1 THEN IF(s.`__batch` >= 3, 1, 0) ELSE 0 END
