INSERT INTO `p.d.dest` (
  `id`,
  `name`,
  `amount`,
  `day`,
  `_topic`,
  `__partition`,
  `_offset`,
  `_batch`

)
SELECT
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`,
  `batch`.`value`.`_topic`,
  `batch`.`value`.`__partition`,
  `batch`.`value`.`_offset`,
  `batch`.`value`.`_batch`

FROM (
  SELECT `x`.*
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last AND `x`.`value` IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
) AS `batch`
LEFT JOIN (
  SELECT DISTINCT `had`.`_topic`, `had`.`__partition`, `had`.`_offset`, CASE `had`.`_topic` WHEN @recreated_0 THEN IF(`had`.`_batch` >= 7, 1, 0) WHEN @recreated_1 THEN IF(`had`.`_batch` >= 3, 1, 0) + IF(`had`.`_batch` >= 12, 1, 0) ELSE 0 END AS `incarnation`, TRUE AS `present`
  FROM `p.d.dest` AS `had`
) AS `h`
ON `h`.`_topic` = `batch`.`value`.`_topic` AND `h`.`__partition` = `batch`.`value`.`__partition` AND `h`.`_offset` = `batch`.`value`.`_offset`
  AND `h`.`incarnation` = CASE `batch`.`value`.`_topic` WHEN @recreated_0 THEN IF(`batch`.`value`.`_batch` >= 7, 1, 0) WHEN @recreated_1 THEN IF(`batch`.`value`.`_batch` >= 3, 1, 0) + IF(`batch`.`value`.`_batch` >= 12, 1, 0) ELSE 0 END
WHERE `h`.`present` IS NULL

