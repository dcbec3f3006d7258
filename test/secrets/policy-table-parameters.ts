/** Rows of the table of policies about what belongs to a request beside its path: parameters, wrapping, limits. */
import { grant, shows } from './policies/policy-rows.ts'
import type { TableCase } from './policies/policy-rows.ts'

export const PARAMETER_CASES: readonly TableCase[] = [
  shows(
    '4: required parameters',
    [
      grant('kv/r', 'update patch read delete list', 'required_parameters = ["ttl", "Who"]'),
      grant('cubbyhole/r/*', 'create', 'required_parameters = ["ttl"]'),
    ],
    `
    update kv/r deny
    update kv/r deny {"data":{}}
    update kv/r deny {"data":{"ttl":"1h"}}
    update kv/r allow {"data":{"ttl":"1h","who":"me"}}
    update kv/r allow {"data":{"ttl":"1h","Who":"me","more":1}}
    update kv/r deny {"data":{"TTL":"1h","who":"me"}}
    update kv/r allow {"data":{"ttl":null,"who":""}}
    patch kv/r deny {"data":{"who":"me"}}
    patch kv/r allow {"data":{"ttl":1,"who":"me"}}
    read kv/r deny
    read kv/r allow {"data":{"ttl":"1","who":"me"}}
    delete kv/r allow
    list kv/r/ allow
    create cubbyhole/r/a deny {"data":{"x":"1"}}
    create cubbyhole/r/b allow {"data":{"ttl":"1"}}`,
  ),
  shows(
    '4: allowed parameters: names',
    [
      grant('kv/a', 'update patch read delete', 'allowed_parameters = { "one" = [], "Two" = [] }'),
      grant('kv/any', 'update', 'allowed_parameters = { "*" = [] }'),
      grant('kv/none', 'update', 'allowed_parameters = {}'),
    ],
    `
    update kv/a allow
    update kv/a allow {"data":{}}
    update kv/a allow {"data":{"one":1}}
    update kv/a allow {"data":{"ONE":1,"two":{"deep":true}}}
    update kv/a deny {"data":{"three":1}}
    update kv/a deny {"data":{"one":1,"three":1}}
    patch kv/a deny {"data":{"three":1}}
    read kv/a deny {"data":{"three":"1"}}
    read kv/a allow {"data":{"one":"1"}}
    delete kv/a allow
    update kv/any allow {"data":{"whatever":[1,2]}}
    update kv/none allow {"data":{"whatever":1}}`,
  ),
  shows(
    '4: allowed parameters: values',
    [
      grant(
        'kv/v',
        'update',
        'allowed_parameters = { "s" = ["a", "b*", "*c", "*d*"], "n" = [1, 2.5], "t" = [true], "any" = ["*"], "l" = [["x", "y"]] }',
      ),
      grant('kv/other', 'update', 'allowed_parameters = { "s" = ["a"], "*" = [] }'),
      grant('kv/rest', 'update', 'allowed_parameters = { "s" = [], "*" = ["x"] }'),
    ],
    `
    update kv/v allow {"data":{"s":"a"}}
    update kv/v deny {"data":{"s":"A"}}
    update kv/v deny {"data":{"s":"aa"}}
    update kv/v allow {"data":{"s":"b"}}
    update kv/v allow {"data":{"s":"bb"}}
    update kv/v allow {"data":{"s":"xc"}}
    update kv/v deny {"data":{"s":"cx"}}
    update kv/v allow {"data":{"s":"xdx"}}
    update kv/v deny {"data":{"s":""}}
    update kv/v allow {"data":{"s":["a"]}}
    update kv/v allow {"data":{"s":["a","bb"]}}
    update kv/v deny {"data":{"s":["a","x"]}}
    update kv/v deny {"data":{"s":["a",["a"]]}}
    update kv/v deny {"data":{"s":[]}}
    update kv/v allow {"data":{"s":"bb, bc"}}
    update kv/v deny {"data":{"s":"bb, x"}}
    update kv/v deny {"data":{"s":"a,a"}}
    update kv/v deny {"data":{"s":{"a":1}}}
    update kv/v deny {"data":{"s":null}}
    update kv/v allow {"data":{"n":1}}
    update kv/v allow {"data":{"n":"1"}}
    update kv/v allow {"data":{"n":2.5}}
    update kv/v deny {"data":{"n":3}}
    update kv/v allow {"data":{"t":true}}
    update kv/v deny {"data":{"t":false}}
    update kv/v allow {"data":{"any":"anything at all"}}
    update kv/v deny {"data":{"s":"a","n":3}}
    update kv/v allow {"data":{"l":["x","y"]}}
    update kv/v deny {"data":{"l":["y","x"]}}
    update kv/v deny {"data":{"l":["x"]}}
    update kv/v deny {"data":{"l":"x"}}
    update kv/v allow {"data":{"S":"a","N":1}}
    update kv/other allow {"data":{"s":"a","else":1}}
    update kv/other deny {"data":{"s":"b","else":1}}
    update kv/rest allow {"data":{"s":"q","else":"x"}}
    update kv/rest deny {"data":{"s":"q","else":"y"}}`,
  ),
  shows(
    '4: denied parameters',
    [
      grant(
        'kv/d',
        'update patch read delete list',
        'denied_parameters = { "no" = [], "s" = ["root", "adm*"], "n" = [0], "t" = [true] }',
      ),
      grant('kv/all', 'update delete', 'denied_parameters = { "*" = [] }'),
      grant('kv/star', 'update', 'denied_parameters = { "s" = ["*"] }'),
      grant('kv/list', 'update', 'denied_parameters = { "s" = [["x", "y"]] }'),
    ],
    `
    update kv/d allow
    update kv/d allow {"data":{"yes":1}}
    update kv/d deny {"data":{"no":1}}
    update kv/d deny {"data":{"NO":null}}
    update kv/d deny {"data":{"yes":1,"no":1}}
    update kv/d deny {"data":{"s":"root"}}
    update kv/d allow {"data":{"s":"user"}}
    update kv/d deny {"data":{"s":"admin"}}
    update kv/d deny {"data":{"s":["user","root"]}}
    update kv/d deny {"data":{"s":"user, root"}}
    update kv/d allow {"data":{"s":["user"]}}
    update kv/d deny {"data":{"n":0}}
    update kv/d deny {"data":{"n":"0"}}
    update kv/d deny {"data":{"n":"0.0"}}
    update kv/d allow {"data":{"n":1}}
    update kv/d deny {"data":{"n":""}}
    update kv/d deny {"data":{"n":null}}
    update kv/d deny {"data":{"t":"True"}}
    update kv/d deny {"data":{"t":1}}
    update kv/d deny {"data":{"t":2}}
    update kv/d allow {"data":{"t":false}}
    patch kv/d deny {"data":{"no":1}}
    read kv/d deny {"data":{"no":"1"}}
    delete kv/d allow {"data":{"no":"1"}}
    update kv/all allow
    update kv/all deny {"data":{"x":1}}
    delete kv/all allow
    update kv/list deny {"data":{"s":["x","y"]}}
    update kv/list deny {"data":{"s":["y","z","x"]}}
    update kv/list deny {"data":{"s":"x,y"}}
    update kv/list allow {"data":{"s":["x"]}}
    update kv/list allow {"data":{"s":"y"}}
    update kv/star deny {"data":{"s":"x"}}
    update kv/star allow {"data":{"other":"x"}}`,
  ),
  shows(
    '4: required, then denied, then allowed',
    [
      grant(
        'kv/o',
        'update',
        'required_parameters = ["a"] allowed_parameters = { "a" = [], "b" = [] } denied_parameters = { "b" = ["bad"] }',
      ),
    ],
    `
    update kv/o deny
    update kv/o deny {"data":{"b":"good"}}
    update kv/o allow {"data":{"a":1}}
    update kv/o allow {"data":{"a":1,"b":"good"}}
    update kv/o deny {"data":{"a":1,"b":"bad"}}
    update kv/o deny {"data":{"a":1,"c":1}}`,
  ),
  shows(
    '2: parameters of one path in several policies are united, and any value wins',
    [
      grant('kv/m', 'update', 'allowed_parameters = { "a" = ["1"], "b" = ["1"] } required_parameters = ["a"]'),
      grant('kv/m', 'update', 'allowed_parameters = { "a" = ["2"], "b" = [], "c" = [] } required_parameters = ["c"]'),
      grant('kv/n', 'update', 'denied_parameters = { "a" = ["1"] }'),
      grant('kv/n', 'update', 'denied_parameters = { "a" = ["2"], "b" = [] }'),
      grant('kv/o', 'update'),
      grant('kv/o', 'update', 'allowed_parameters = { "a" = [] }'),
    ],
    `
    update kv/m deny {"data":{"a":"1"}}
    update kv/m deny {"data":{"c":"1"}}
    update kv/m allow {"data":{"a":"1","c":"x"}}
    update kv/m allow {"data":{"a":"2","c":"x","b":"anything"}}
    update kv/m deny {"data":{"a":"3","c":"x"}}
    update kv/m deny {"data":{"a":"1","c":"x","d":"x"}}
    update kv/n deny {"data":{"a":"1"}}
    update kv/n deny {"data":{"a":"2"}}
    update kv/n allow {"data":{"a":"3"}}
    update kv/n deny {"data":{"b":"3"}}
    update kv/o allow {"data":{"a":"1"}}
    update kv/o deny {"data":{"b":"1"}}`,
  ),
  shows(
    '4: bounds of wrapping',
    [
      grant('kv/min', 'read list delete', 'min_wrapping_ttl = "10s"'),
      grant('kv/max', 'read', 'max_wrapping_ttl = "1m"'),
      grant('kv/both', 'read update', 'min_wrapping_ttl = 10 max_wrapping_ttl = 60'),
      grant('kv/zero', 'read', 'min_wrapping_ttl = 0'),
    ],
    `
    read kv/min deny
    read kv/min deny {"wrap":9}
    read kv/min allow {"wrap":10}
    read kv/min allow {"wrap":100000}
    list kv/min/ deny
    list kv/min/ allow {"wrap":10}
    delete kv/min deny
    read kv/max deny
    read kv/max allow {"wrap":1}
    read kv/max allow {"wrap":60}
    read kv/max deny {"wrap":61}
    read kv/both deny
    read kv/both deny {"wrap":9}
    read kv/both allow {"wrap":30}
    read kv/both deny {"wrap":61}
    update kv/both deny {"data":{"a":1}}
    read kv/zero allow
    read kv/zero allow {"wrap":5}`,
  ),
  shows(
    '2: bounds of wrapping in several policies: the smaller of each',
    [
      grant('kv/w', 'read', 'min_wrapping_ttl = 10 max_wrapping_ttl = 100'),
      grant('kv/w', 'read', 'min_wrapping_ttl = 20 max_wrapping_ttl = 50'),
      grant('kv/x', 'read'),
      grant('kv/x', 'read', 'min_wrapping_ttl = 5'),
      grant('kv/y', 'read', 'min_wrapping_ttl = 90'),
      grant('kv/y', 'read', 'max_wrapping_ttl = 30'),
    ],
    `
    read kv/w deny {"wrap":9}
    read kv/w allow {"wrap":10}
    read kv/w allow {"wrap":50}
    read kv/w deny {"wrap":51}
    read kv/x deny
    read kv/x allow {"wrap":5}
    read kv/y deny {"wrap":30}
    read kv/y deny {"wrap":60}
    read kv/y deny {"wrap":90}`,
  ),
  shows(
    '4: pagination limit',
    [
      grant('kv/p/*', 'list scan read', 'pagination_limit = 10'),
      grant('kv/q/*', 'list', 'pagination_limit = 10 required_parameters = ["limit"]'),
      grant('kv/free/*', 'list'),
      grant('kv/two/*', 'list', 'pagination_limit = 7'),
      grant('kv/two/*', 'list', 'pagination_limit = 3'),
    ],
    `
    list kv/p/ allow {"gives":10}
    scan kv/p/ allow {"gives":10}
    list kv/p/ allow {"data":{"limit":"5"},"gives":5}
    list kv/p/ allow {"data":{"limit":"10"},"gives":10}
    list kv/p/ deny {"data":{"limit":"11"}}
    list kv/p/ deny {"data":{"limit":"-1"}}
    list kv/p/ allow {"data":{"limit":"0"},"gives":10}
    list kv/p/ allow {"data":{"limit":"max"},"gives":10}
    scan kv/p/ deny {"data":{"limit":"11"}}
    read kv/p/a allow
    list kv/q/ deny
    list kv/q/ allow {"data":{"limit":"5"},"gives":5}
    list kv/free/ allow
    list kv/free/ allow {"data":{"limit":"max"},"gives":0}
    list kv/two/ allow {"gives":3}
    list kv/two/ deny {"data":{"limit":"4"}}`,
  ),
]
