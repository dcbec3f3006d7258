/** What a release holds beside its packages: bill of materials, checksums, signature, workflow. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { test } from 'node:test'
import { Ajv } from 'ajv'
import addFormats from 'ajv-formats'
import { build } from 'esbuild'
import { checksums, signatureOf } from '../../scripts/dist/checksums.ts'
import { type Lock, sbomOf } from '../../scripts/dist/sbom.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const readJson = (path: string): unknown => JSON.parse(readFileSync(join(ROOT, path), 'utf8'))

function purlOf([name, version]: readonly [string, string]): string {
  return `pkg:npm/${name.replace('@', '%40')}@${version}`
}

interface Sbom {
  readonly components: readonly { readonly name: string; readonly purl: string; readonly version: string }[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

test('the bill of materials is valid CycloneDX, names Node and every package of the program, and no development package', () => {
  const lock = readJson('package-lock.json') as Lock
  const facts = { lock, version: '1.2.3', architecture: 'arm64', releaseSeconds: 1_790_000_000 }
  const text = sbomOf(facts)
  assert.equal(sbomOf(facts), text)
  const sbom = JSON.parse(text) as Sbom
  const ajv = new Ajv({ strict: false })
  addFormats.default(ajv)
  // Formats of newer drafts, which the schema uses.
  for (const format of ['idn-email', 'iri-reference']) ajv.addFormat(format, true)
  for (const name of ['spdx', 'jsf-0.82']) ajv.addSchema(readJson(`fixtures/cyclonedx/${name}.schema.json`) as object)
  const validate = ajv.compile(readJson('fixtures/cyclonedx/bom-1.6.schema.json') as object)
  assert.ok(validate(sbom), JSON.stringify(validate.errors))

  const { dependencies, devDependencies } = readJson('package.json') as Record<string, Record<string, string>>
  const purls = new Set(sbom.components.map(({ purl }) => purl))
  assert.deepEqual(
    Object.entries(dependencies ?? {})
      .map(purlOf)
      .filter((purl) => !purls.has(purl)),
    [],
  )
  assert.deepEqual(
    Object.entries(devDependencies ?? {})
      .map(purlOf)
      .filter((purl) => purls.has(purl)),
    [],
  )
  assert.deepEqual(
    sbom.components.filter(({ purl }) => purl.endsWith('/node@24.21.0')).map(({ purl }) => purl),
    ['pkg:generic/node@24.21.0'],
  )
  assert.ok(purls.has('pkg:npm/%40msgpackr-extract/msgpackr-extract-linux-arm64@3.0.4'))
  assert.ok(!purls.has('pkg:npm/%40msgpackr-extract/msgpackr-extract-linux-x64@3.0.4'))
  const grpc = sbom.dependencies.find(({ ref }) => ref.startsWith('pkg:npm/%40grpc/grpc-js@'))
  assert.ok(grpc?.dependsOn.some((ref) => ref.startsWith('pkg:npm/%40grpc/proto-loader@')))
})

test('sha256sum and openssl verify the checksums and their signature', (t) => {
  const directory = temporaryDirectory(t)
  const files = ['b', 'a'].map((name) => ({ name, content: Buffer.from(`content of ${name}`) }))
  for (const { name, content } of files) writeFileSync(join(directory, name), content)
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const keyFile = join(directory, 'key.pem')
  writeFileSync(keyFile, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 })
  writeFileSync(join(directory, 'outpost.pub'), publicKey.export({ type: 'spki', format: 'pem' }))
  const sums = checksums(files)
  writeFileSync(join(directory, 'SHA256SUMS'), sums)
  writeFileSync(join(directory, 'SHA256SUMS.sig'), signatureOf(sums, keyFile))
  execFileSync('sha256sum', ['--quiet', '--check', 'SHA256SUMS'], { cwd: directory })
  // As docs/packages.md gives it.
  const verify = /^openssl pkeyutl .*$/m.exec(readFileSync(join(ROOT, 'docs/packages.md'), 'utf8'))?.[0]
  assert.ok(verify)
  const verified = () => spawnSync('sh', ['-c', verify], { cwd: directory }).status === 0
  assert.ok(verified())
  writeFileSync(join(directory, 'SHA256SUMS'), `${sums}${'0'.repeat(64)}  c\n`)
  assert.ok(!verified())
})

test('a key that is not Ed25519, or not a key, is refused without its content', (t) => {
  const directory = temporaryDirectory(t)
  const file = join(directory, 'key.pem')
  writeFileSync(
    file,
    generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }),
  )
  assert.throws(() => signatureOf('text', file), /key\.pem is not an Ed25519 key/)
  writeFileSync(file, 'planted')
  assert.throws(
    () => signatureOf('text', file),
    (error: Error) => !error.message.includes('planted'),
  )
})

/** The parser of the forge imports JSON without an attribute, which only bundlers accept. */
async function workflowParser(directory: string): Promise<typeof import('@actions/workflow-parser')> {
  const outfile = join(directory, 'parser.mjs')
  const contents = "export * from '@actions/workflow-parser'"
  const stdin = { contents, resolveDir: ROOT }
  const banner = { js: "const require = process.getBuiltinModule('node:module').createRequire(import.meta.url)" }
  await build({ stdin, outfile, banner, bundle: true, format: 'esm', platform: 'node', logLevel: 'error' })
  return import(pathToFileURL(outfile).href) as Promise<typeof import('@actions/workflow-parser')>
}

test('the release workflow has the schema of its forge, and its shell steps parse', async (t) => {
  const { NoOperationTraceWriter, parseWorkflow } = await workflowParser(temporaryDirectory(t))
  const name = '.github/workflows/release.yml'
  const parse = (content: string) =>
    parseWorkflow({ name, content }, new NoOperationTraceWriter()).context.errors.getErrors()
  const content = readFileSync(join(ROOT, name), 'utf8')
  assert.deepEqual(parse(content).map(String), [])
  assert.notEqual(parse(content.replace('runs-on:', 'run-on:')).length, 0)
  const scripts = [...content.matchAll(/^( +)run: \|\n((?:\1 {2}.*\n|\n)+)/gm)].map(([, , script = '']) => script)
  assert.ok(scripts.length >= 3)
  for (const script of scripts) {
    const { status, stderr } = spawnSync('bash', ['-n'], {
      input: script.replaceAll(/\$\{\{.*?\}\}/g, 'x'),
      encoding: 'utf8',
    })
    assert.equal(status, 0, stderr)
  }
})

test('the image contains every program that outpost starts, except those of systemd', () => {
  const sources = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.ts'),
  )
  const started = sources.flatMap((path) =>
    [...readFileSync(join(ROOT, 'src', path), 'utf8').matchAll(/\b(?:spawn|execFile)(?:Sync)?\('([^']+)'/g)].map(
      ([, program = '']) => program,
    ),
  )
  assert.ok(started.includes('flock'))
  const script = readFileSync(join(ROOT, 'deploy/container/rootfs.sh'), 'utf8')
  const copied = [...script.matchAll(/^cp -L (.*) "\$root/gm)].flatMap(([, files = '']) => files.split(' '))
  const names = new Set([...copied.map((path) => path.slice(path.lastIndexOf('/') + 1)), '/bin/sh', 'timedatectl'])
  assert.deepEqual(
    started.filter((program) => !names.has(program)),
    [],
  )
})
