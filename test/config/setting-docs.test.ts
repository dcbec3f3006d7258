/** The descriptions of the settings, from which the configuration reference is written, against the program. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { type Config, loadConfig } from '../../src/config/load.ts'
import { SETTING_DOCS } from '../../src/config/reference/setting-docs.ts'
import { diffReload } from '../../src/config/reload-diff.ts'

const DIRECTORY = mkdtempSync(join(tmpdir(), 'outpost-settings-'))
after(() => rmSync(DIRECTORY, { recursive: true }))

/** Settings that a setting requires, in files before it. */
const COMPANIONS: Readonly<Record<string, string>> = {
  'tls.http': 'tls {\n cert_file = "/c"\n key_file = "/k"\n}',
  'tls.verify_https_client': 'tls {\n http = true\n cert_file = "/c"\n key_file = "/k"\n ca_file = "/a"\n}',
  ...Object.fromEntries(
    ['interval', 'keep', 'region', 'endpoint'].map((name) => [
      `server.snapshot.${name}`,
      'server {\n snapshot {\n path = "s3://bucket"\n}\n}',
    ]),
  ),
  'nats.user': 'nats {\n password_file = "/p"\n}',
  'nats.password_file': 'nats {\n user = "u"\n}',
  'nats.cert_file': 'nats {\n key_file = "/k"\n}',
  'nats.key_file': 'nats {\n cert_file = "/c"\n}',
  'nats.core_keys': `nats {\n server_keys = ${SETTING_DOCS['nats.core_keys'].example}\n}`,
  'secrets.role_id': 'secrets {\n secret_id_file = "/s"\n}',
  'secrets.role_id_file': 'secrets {\n secret_id_file = "/s"\n}',
  'secrets.secret_id_file': 'secrets {\n role_id = "r"\n}',
  'secrets.cert_file': 'secrets {\n key_file = "/k"\n}',
  'secrets.key_file': 'secrets {\n cert_file = "/c"\n}',
}

/** Without the setting, and without its companions, the configuration is valid. */
function baseOf(path: string): string[] {
  const [block = ''] = path.split('.')
  const role = path === 'client.enabled' ? 'server' : 'client'
  const texts = [`data_dir = "/d"\n${role} { enabled = true }`]
  if (block === 'nats' || block === 'secrets') texts.push('nats { }')
  if (block === 'secrets' && !/_id(_file)?$/.test(path)) {
    texts.push('secrets {\n role_id = "r"\n secret_id_file = "/s"\n address = "https://s:1"\n}')
  }
  return texts
}

/** A setting as a file has it. */
function hclOf(path: string, value: string): string {
  if (path === 'server.seal') return `server {\n seal ${value}\n}`
  const token = /^acl\.token\.(.*)$/.exec(path)?.[1]
  if (token !== undefined) {
    const other = token === 'policy' ? 'sha256' : 'policy'
    return `acl {\n token "ops" {\n ${token} = ${value}\n ${other} = ${SETTING_DOCS[`acl.token.${other}`].example}\n }\n}`
  }
  const [name = '', ...blocks] = path.split('.').toReversed()
  const setting = value.startsWith('{') ? `${name} ${value}` : `${name} = ${value}`
  return blocks.reduce((inner, block) => `${block} {\n${inner}\n}`, setting)
}

/** Each text is a file, so that later ones may override earlier ones. */
function load(...texts: readonly string[]): Config {
  const paths = texts.map((text, index) => {
    const file = join(DIRECTORY, `${index}.hcl`)
    writeFileSync(file, text)
    return file
  })
  return loadConfig({ paths, hostname: 'host' }).config
}

for (const [path, doc] of Object.entries(SETTING_DOCS)) {
  test(`${path} of the reference has the default of the program, a valid example, and says what a reload does`, () => {
    const companion = COMPANIONS[path]
    const texts = [...baseOf(path), ...(companion === undefined ? [] : [companion])]
    const changed = load(...texts, hclOf(path, doc.example))
    // Two settings that are valid together only.
    const isRequired = /^(?:nats|secrets)\./.test(path) && companion !== undefined
    const before = isRequired ? load(...baseOf(path)) : load(...texts)
    if (doc.default !== undefined) assert.deepEqual(load(...texts, hclOf(path, doc.default)), before)
    const { applied, needsRestart } = diffReload(before, changed)
    if (doc.reload) assert.deepEqual([applied.length > 0, needsRestart], [true, []])
    else assert.deepEqual([applied, needsRestart.length > 0], [[], true])
  })
}
