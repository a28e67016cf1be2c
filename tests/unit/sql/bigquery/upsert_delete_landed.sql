MERGE `p.d.dest` AS `t`
USING (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`
  FROM (SELECT `s`.* REPLACE (IF(`s`.`op` = 'delete', NULL, `s`.`value`) AS `value`) FROM `p.d._dest_tmp_p_1_2` AS `s`) AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`id`
    ORDER BY `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

) AS `batch`
ON
  `t`.`id` = `batch`.`key`.`id`

WHEN MATCHED AND `batch`.`value` IS NULL THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL THEN UPDATE SET
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

