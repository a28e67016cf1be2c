MERGE `p.d.dest` AS `t`
USING (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`day`
    ORDER BY `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

) AS `batch`
ON
  `t`.`day` = `batch`.`key`.`day`
  AND `t`.`day` BETWEEN CAST(@low_0 AS DATE) AND CAST(@high_0 AS DATE)

WHEN MATCHED AND `batch`.`value` IS NULL THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL THEN UPDATE SET
  `id` = `batch`.`value`.`id`,
  `name` = `batch`.`value`.`name`,
  `amount` = `batch`.`value`.`amount`
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `id`,
  `name`,
  `amount`,
  `day`

) VALUES (
  `batch`.`value`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`key`.`day`

)

