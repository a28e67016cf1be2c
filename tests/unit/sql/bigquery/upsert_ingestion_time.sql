MERGE `p.d.dest` AS `t`
USING (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last
    AND `x`.`value` IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`id`
    ORDER BY `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

) AS `batch`
ON
  `t`.`id` = `batch`.`key`.`id`
  AND (`t`.`_PARTITIONTIME` IS NULL OR `t`.`_PARTITIONTIME` >= TIMESTAMP '0001-01-01')

WHEN MATCHED AND `batch`.`value` IS NOT NULL THEN UPDATE SET
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
  TIMESTAMP_TRUNC(`batch`.`partitionTime`, HOUR),
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`

)

