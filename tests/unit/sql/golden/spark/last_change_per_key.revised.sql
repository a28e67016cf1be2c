SELECT * EXCEPT (`__rank`, `__rank_last`)
FROM (
  SELECT *,
    row_number() OVER (
      PARTITION BY `carrier`, `flight`
      ORDER BY `__rank_last`, `__batch` DESC, `__i` DESC
    ) AS `__rank`
  FROM (SELECT 1)
)
WHERE `__rank` = 1 AND `__op` <> 'blocked'
