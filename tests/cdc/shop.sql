-- A shop beside pgbench's four tables: sixteen tables in two schemas, with the types and keys that shops have.
CREATE SCHEMA sales;
CREATE TYPE public.mood AS ENUM ('good', 'so so', 'bad');

CREATE TABLE customers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, email varchar(80) UNIQUE,
  born date, vip boolean NOT NULL DEFAULT false, score real, since timestamptz NOT NULL DEFAULT now(), tags text[]);
CREATE TABLE categories (code char(4) PRIMARY KEY, title text NOT NULL, parent char(4));
CREATE TABLE products (id int PRIMARY KEY, category char(4), title text NOT NULL, price numeric(8,2) NOT NULL,
  weight double precision, stock int NOT NULL, details jsonb, changed timestamp NOT NULL DEFAULT now());
CREATE TABLE pictures (product int PRIMARY KEY, body bytea NOT NULL, caption text);
CREATE TABLE prices (product int, country char(2), price numeric(10,2), from_day date, PRIMARY KEY (product, country));
CREATE TABLE stock (warehouse smallint, product int, pieces int NOT NULL, counted timestamp(3), PRIMARY KEY (warehouse, product));
CREATE TABLE reviews (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), product int, stars smallint, feeling mood, body text);
CREATE TABLE coupons (code text PRIMARY KEY, percent numeric, ends timestamp, uses int NOT NULL DEFAULT 0);
CREATE TABLE visits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer bigint, page text, at timestamptz DEFAULT now());
CREATE TABLE settings (name text PRIMARY KEY, value json, at_night time);

CREATE TABLE sales.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer bigint NOT NULL, state text NOT NULL,
  total numeric(12,2) NOT NULL DEFAULT 0, placed timestamptz NOT NULL DEFAULT now(), note text);
CREATE TABLE sales.order_lines (order_id bigint, line smallint, product int NOT NULL, pieces int NOT NULL,
  price numeric(8,2), PRIMARY KEY (order_id, line));
CREATE TABLE sales.payments (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), order_id bigint NOT NULL, amount numeric(12,2),
  paid timestamp NOT NULL DEFAULT now(), fee real);
CREATE TABLE sales.shipments (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id bigint NOT NULL, sent date, places int[]);
CREATE TABLE sales.carts (customer bigint PRIMARY KEY, product int, pieces int, touched timestamptz);
CREATE TABLE sales.audit (at timestamptz NOT NULL DEFAULT clock_timestamp(), who text, what text);

-- Large values: an update that does not touch them leaves them out otherwise.
ALTER TABLE pictures REPLICA IDENTITY FULL;
ALTER TABLE reviews REPLICA IDENTITY FULL;

INSERT INTO customers (name, email, born, vip, score, tags) SELECT 'Customer ' || n || ' ''é"\', 'c' || n || '@example.org',
  '1960-01-01'::date + n, n % 7 = 0, (ARRAY['NaN', '1.1', 'Infinity', NULL, '-0.25'])[n % 5 + 1]::real, ARRAY['t' || n, NULL, 'x,y']
  FROM generate_series(1, 300) n;
INSERT INTO categories SELECT 'c' || n, 'Category ' || n, CASE WHEN n > 3 THEN 'c' || n % 3 END FROM generate_series(1, 12) n;
INSERT INTO products SELECT n, 'c' || n % 12 + 1, 'Product ' || n, n * 1.25, n / 7.0::float8, 1000,
  jsonb_build_object('n', n, 'colours', ARRAY['red', 'blue']) FROM generate_series(1, 200) n;
INSERT INTO pictures SELECT n, decode(repeat(to_hex(n % 16 + 16), 3000), 'hex'), 'Picture ' || n FROM generate_series(1, 40) n;
INSERT INTO prices SELECT n, country, n * 1.5, '2026-01-01'::date + n FROM generate_series(1, 200) n, unnest(ARRAY['de', 'fr', 'at']) country;
INSERT INTO stock SELECT w, n, 10, '2026-01-01 12:00:00.125' FROM generate_series(1, 3) w, generate_series(1, 200) n;
INSERT INTO reviews (product, stars, feeling, body) SELECT n, n % 5 + 1, (enum_range(NULL::mood))[n % 3 + 1], repeat('ä ' || n, 1500)
  FROM generate_series(1, 60) n;
INSERT INTO coupons SELECT 'SAVE' || n, n * 1.123456789, '2027-01-01' FROM generate_series(1, 25) n;
INSERT INTO visits (customer, page) SELECT n % 300 + 1, '/p/' || n FROM generate_series(1, 500) n;
INSERT INTO settings VALUES ('open', '{"from": 8, "to": 18.5}', '06:30'), ('odd', '[1, null, "x"]', '23:59:59.999999'), ('none', NULL, NULL);
INSERT INTO sales.orders (customer, state) SELECT n % 300 + 1, 'new' FROM generate_series(1, 200) n;
INSERT INTO sales.order_lines SELECT n, l, (n * l) % 200 + 1, l, 9.99 FROM generate_series(1, 200) n, generate_series(1, 3) l;
INSERT INTO sales.payments (order_id, amount, fee) SELECT n, n * 3.5, 0.1 FROM generate_series(1, 100) n;
INSERT INTO sales.shipments (order_id, sent, places) SELECT n, '2026-02-28', ARRAY[n, NULL, n + 1] FROM generate_series(1, 50) n;
INSERT INTO sales.carts SELECT n, n % 200 + 1, 2, now() FROM generate_series(1, 150) n;
INSERT INTO sales.audit (who, what) SELECT 'admin', 'made ' || n FROM generate_series(1, 20) n;
