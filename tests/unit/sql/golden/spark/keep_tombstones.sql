MERGE INTO `lake`.`air`.`flights__tombstones` AS t
USING (
  SELECT `carrier`, `flight`, max(`__order`) AS `__order`
  FROM `batchmerge_changes`
  WHERE `__op` = 'delete' AND `__order` IS NOT NULL
  GROUP BY `carrier`, `flight`
) AS s
ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight`

WHEN MATCHED AND s.`__order` > t.`__order` THEN UPDATE SET t.`__order` = s.`__order`
WHEN NOT MATCHED THEN INSERT (`carrier`, `flight`, `__order`) VALUES (s.`carrier`, s.`flight`, s.`__order`)
