SELECT * EXCEPT (`__rank`)
FROM (
  SELECT *,
    row_number() OVER (
      PARTITION BY `carrier`, `flight`
      ORDER BY `__order` DESC, `__batch` DESC, `__i` DESC
    ) AS `__rank`
  FROM (SELECT 1)
)
WHERE `__rank` = 1
