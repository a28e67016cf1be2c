INSERT INTO `p.d.dest` (
  `_PARTITIONTIME`,
  `id`,
  `name`,
  `amount`,
  `day`,
  `_topic`,
  `__partition`,
  `_offset`

)
SELECT
  TIMESTAMP_TRUNC(`batch`.`partitionTime`, DAY),
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`,
  `batch`.`value`.`_topic`,
  `batch`.`value`.`__partition`,
  `batch`.`value`.`_offset`

FROM (
  SELECT `x`.*
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last AND `x`.`value` IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
) AS `batch`
LEFT JOIN (
  SELECT DISTINCT `had`.`_topic`, `had`.`__partition`, `had`.`_offset`, TRUE AS `present`
  FROM `p.d.dest` AS `had`
  WHERE (`had`.`_PARTITIONTIME` IS NULL OR `had`.`_PARTITIONTIME` >= TIMESTAMP '0001-01-01')
) AS `h`
ON `h`.`_topic` = `batch`.`value`.`_topic` AND `h`.`__partition` = `batch`.`value`.`__partition` AND `h`.`_offset` = `batch`.`value`.`_offset`
WHERE `h`.`present` IS NULL

