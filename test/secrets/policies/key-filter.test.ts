import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compileAcl } from '../../../src/secrets/policies/acl.ts'
import { runSliced } from '../../../src/platform/sliced-work.ts'
import { filteredPath, parseKeyFilter, withoutKeys } from '../../../src/secrets/policies/key-filter.ts'
import { checkPolicy, parsePolicy } from '../../../src/secrets/policies/policy.ts'

function filled(template: string, path = 'kv/metadata/', key = 'a'): string | undefined {
  const filter = parseKeyFilter(template)
  return filter && filteredPath(filter, path, key)
}

test('key filter templates are parsed and filled in', () => {
  assert.equal(filled('{{ .path }}{{ .key }}'), 'kv/metadata/a')
  assert.equal(filled('{{.path | replace "kv/metadata/" "kv/data/"}}{{.key}}'), 'kv/data/a')
  assert.equal(filled('x/{{ .key | replace "a" "$&b" | replace "b" "" }}/y'), 'x/$&/y')
  for (const wrong of [
    '',
    'kv/',
    '{{ .path }}',
    '{{ .key',
    '.key }}',
    '{{ .key }}}}',
    '{{ .name }}{{ .key }}',
    '{{ .key | upper }}',
    '{{ .key | replace "" "x" }}',
    '{{ .key | replace "a" }}',
    '{{ {{ .key }} }}',
  ]) {
    assert.equal(parseKeyFilter(wrong), undefined, wrong)
  }
  assert.equal(filled(`{{ .key | replace "a" "${'a'.repeat(512)}" | replace "a" "${'b'.repeat(512)}" }}`), undefined)
})

test('a filtered list has the names that the caller may read and the folders that it may list', () => {
  const acl = compileAcl(
    [
      `path "kv/metadata/*" {
         capabilities = ["list", "scan"]
         list_scan_response_keys_filter_path = "{{ .path | replace \\"kv/metadata/\\" \\"kv/data/\\" }}{{ .key }}"
       }
       path "kv/data/mine" { capabilities = ["read"] }
       path "kv/data/team/*" { capabilities = ["read", "list"] }
       path "kv/data/team/not" { capabilities = ["deny"] }`,
    ].map((text, index) => ({ name: `p${index}`, policy: parsePolicy(text) })),
    0,
  )
  const list = (path: string, keys: string[]) => {
    const { allowed, keeps } = acl.decide({ operation: 'list', path })
    assert.ok(allowed && keeps)
    const data = { keys, key_info: Object.fromEntries(keys.map((key) => [key, 1])), more: keys }
    const left = runSliced(withoutKeys(data, keeps), { signal: new AbortController().signal })
    assert.ok(!(left instanceof Promise))
    return left
  }
  assert.deepEqual(list('kv/metadata/', ['mine', 'other', 'team/', 'x/']), {
    keys: ['mine', 'team/'],
    key_info: { mine: 1, 'team/': 1 },
  })
  assert.deepEqual(list('kv/metadata/team', ['a', 'not'])['keys'], ['a'])
  assert.equal(acl.decide({ operation: 'read', path: 'kv/data/mine' }).keeps, undefined)
})

function filteredBy(to: string): string {
  return `path "kv/*" { capabilities = ["list"] list_scan_response_keys_filter_path = "${to}/{{ .key }}" } path "${to}/both" { capabilities = ["read"] } path "${to}/${to}" { capabilities = ["read"] }`
}

test('filters of several policies apply together, and a malformed one is an error', () => {
  const acl = compileAcl(
    ['a', 'b'].map((to) => ({ name: to, policy: parsePolicy(filteredBy(to)) })),
    0,
  )
  const { keeps } = acl.decide({ operation: 'list', path: 'kv/' })
  assert.deepEqual(
    ['a', 'b', 'both'].map((key) => keeps?.(key)),
    [false, false, true],
  )
  const [fault] = checkPolicy('path "a" { list_scan_response_keys_filter_path = "x" }')
  assert.match(fault?.message ?? '', /must be a template such as/)
})
