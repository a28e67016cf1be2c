INSERT INTO `p.d.dest` (
  `id`,
  `name`,
  `amount`,
  `day`

)
SELECT
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`

FROM (
  SELECT `x`.*
  FROM (SELECT `s`.* REPLACE (IF(`s`.`op` = 'delete', NULL, `s`.`value`) AS `value`) FROM `p.d._dest_tmp_p_1_2` AS `s`) AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last AND `x`.`value` IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
) AS `batch`

