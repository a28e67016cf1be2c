MERGE `p.d.dest` AS `t`
USING (
  SELECT * FROM (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`, `x`.`orderBy`, `x`.`batchNumber`
  FROM (SELECT `s`.* FROM `p.d._dest_tmp_p_1_2` AS `s` WHERE `s`.`orderBy` >= @below) AS `x`
  WHERE (`x`.`batchNumber` BETWEEN @first AND @last OR (`x`.`batchNumber` < @first AND `x`.`value` IS NULL))
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`id`
    ORDER BY `x`.`orderBy` DESC, `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

  ) AS `kept` WHERE `kept`.`batchNumber` >= @first
) AS `batch`
ON
  `t`.`id` = `batch`.`key`.`id`
  AND (`t`.`_PARTITIONTIME` IS NULL OR `t`.`_PARTITIONTIME` >= TIMESTAMP '0001-01-01')

WHEN MATCHED AND `batch`.`value` IS NULL AND (`t`.`amount` IS NULL OR `batch`.`orderBy` >= `t`.`amount`) THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL AND (`t`.`amount` IS NULL OR `batch`.`orderBy` >= `t`.`amount`) THEN UPDATE SET
  `name` = `batch`.`value`.`name`,
  `amount` = `batch`.`value`.`amount`,
  `day` = `batch`.`value`.`day`
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `_PARTITIONTIME`,
  `id`,
  `name`,
  `amount`,
  `day`

) VALUES (
  TIMESTAMP_TRUNC(`batch`.`partitionTime`, DAY),
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`

)
WHEN NOT MATCHED BY SOURCE AND (`t`.`amount` IS NULL OR `t`.`amount` < @below) AND (`t`.`_PARTITIONTIME` IS NULL OR `t`.`_PARTITIONTIME` >= TIMESTAMP '0001-01-01') THEN DELETE

