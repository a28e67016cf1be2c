MERGE `p.d.dest` AS `t`
USING (
  SELECT * FROM (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`, `x`.`orderBy`, `x`.`batchNumber`
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE (`x`.`batchNumber` BETWEEN @first AND @last OR (`x`.`batchNumber` < @first AND `x`.`value` IS NULL))
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`id`
    ORDER BY `x`.`orderBy` DESC, `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

  ) AS `kept` WHERE `kept`.`batchNumber` >= @first
) AS `batch`
ON
  `t`.`id` = `batch`.`key`.`id`

WHEN MATCHED AND `batch`.`value` IS NULL AND (`t`.`amount` IS NULL OR `batch`.`orderBy` >= `t`.`amount`) THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL AND (`t`.`amount` IS NULL OR `batch`.`orderBy` >= `t`.`amount`) THEN UPDATE SET
  `name` = `batch`.`value`.`name`,
  `amount` = `batch`.`value`.`amount`,
  `day` = `batch`.`value`.`day`
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `id`,
  `name`,
  `amount`,
  `day`

) VALUES (
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`

)

