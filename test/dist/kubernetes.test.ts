/** The manifests against the schemas of Kubernetes, with unknown fields refused, and what they promise. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync, mkdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const MANIFESTS = join(ROOT, 'deploy/kubernetes')

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string }
}

interface Probe {
  readonly httpGet: { readonly path: string }
}

interface Container {
  readonly args: readonly string[]
  readonly readinessProbe: Probe
  readonly livenessProbe: Probe
  readonly startupProbe?: Probe
  readonly securityContext: {
    readonly allowPrivilegeEscalation: boolean
    readonly readOnlyRootFilesystem: boolean
    readonly capabilities: { readonly drop: readonly string[]; readonly add?: readonly string[] }
  }
}

interface Workload extends Manifest {
  readonly spec: { readonly template: { readonly spec: { readonly containers: readonly Container[] } } }
}

function manifests(): Manifest[] {
  return readdirSync(MANIFESTS)
    .filter((name) => name !== 'kustomization.yaml')
    .flatMap((name) =>
      parseAllDocuments(readFileSync(join(MANIFESTS, name), 'utf8')).map((each) => each.toJS() as Manifest),
    )
}

/** The package has a module for each kind. */
function moduleOf({ apiVersion, kind }: Manifest): string {
  return `kubernetes-models/${apiVersion}/${kind}`
}

test('each manifest is valid by the schema of its kind, and the kustomization names each file', async () => {
  for (const manifest of manifests()) {
    const model = (await import(moduleOf(manifest))) as Record<string, new (data: unknown) => { validate(): void }>
    const Model = model[manifest.kind]
    assert.ok(Model, manifest.kind)
    new Model(manifest).validate()
    assert.throws(() => new Model({ ...manifest, metadata: { name: 1 } }).validate(), /name/)
  }
  const { resources } = parse(readFileSync(join(MANIFESTS, 'kustomization.yaml'), 'utf8')) as { resources: string[] }
  assert.deepEqual(
    resources.toSorted(),
    readdirSync(MANIFESTS)
      .filter((name) => name !== 'kustomization.yaml')
      .toSorted(),
  )
})

/** TypeScript in which each manifest is a literal of the type of its kind. */
function literals(all: readonly Manifest[]): string {
  return all
    .map((manifest, index) => {
      const type = `import('${moduleOf(manifest)}').I${manifest.kind}`
      return `export const m${index}: ${type} = ${JSON.stringify(manifest)}\n`
    })
    .join('')
}

test('no manifest has a field that its kind does not have', () => {
  // The compiler refuses unknown fields of literals; the schemas allow them.
  const directory = join(ROOT, 'node_modules/.cache/manifests')
  const faults = (all: readonly Manifest[]) => {
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, 'manifests.ts'), literals(all))
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--ignoreConfig', '--module', 'nodenext', '--types', '']
    const { stdout } = spawnSync(join(ROOT, 'node_modules/.bin/tsc'), [...options, 'manifests.ts'], {
      cwd: directory,
      encoding: 'utf8',
    })
    return stdout
  }
  try {
    const all = manifests()
    assert.equal(faults(all), '')
    const [first] = all
    assert.ok(first)
    const misspelled = { ...first.metadata, nmae: 'x' }
    assert.match(faults([{ ...first, metadata: misspelled }]), /nmae/)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})

test('the workloads run with the least rights, and probe liveness and readiness apart', () => {
  const all = manifests().filter(({ kind }) => ['StatefulSet', 'DaemonSet', 'Deployment'].includes(kind)) as Workload[]
  assert.deepEqual(all.map(({ kind }) => kind).toSorted(), ['DaemonSet', 'Deployment', 'StatefulSet'])
  for (const { kind, spec } of all) {
    for (const { securityContext, livenessProbe, readinessProbe, startupProbe } of spec.template.spec.containers) {
      assert.equal(securityContext.allowPrivilegeEscalation, false)
      assert.equal(securityContext.readOnlyRootFilesystem, true)
      assert.deepEqual(securityContext.capabilities.drop, ['ALL'])
      assert.deepEqual(securityContext.capabilities.add, kind === 'DaemonSet' ? ['DAC_OVERRIDE', 'FOWNER'] : undefined)
      if (kind === 'Deployment') continue
      // A sealed server is not ready; a restart would not unseal it.
      assert.equal(livenessProbe.httpGet.path, '/v1/agent/health')
      assert.equal(startupProbe?.httpGet.path, '/v1/agent/health')
      assert.equal(readinessProbe.httpGet.path, '/v1/agent/ready')
    }
  }
})

test('the configurations of the manifests and of the compose file are accepted together with the keys of a cluster', (t) => {
  const directory = temporaryDirectory(t)
  const keys = join(directory, 'keys')
  const members = ['-server', 'outpost-server-0', '-server', 'outpost-server-1', '-agent', 'w1']
  execFileSync(join(ROOT, 'bin/outpost'), [
    'cluster',
    'keys',
    '-out',
    keys,
    '-nats',
    'tls://nats.outpost.svc:4222',
    ...members,
  ])
  const maps = manifests().filter(({ kind }) => kind === 'ConfigMap') as (Manifest & { data: Record<string, string> })[]
  const texts = maps.flatMap(({ data }) => Object.entries(data)).filter(([name]) => name.endsWith('.hcl'))
  assert.deepEqual(
    texts.map(([name]) => name),
    ['server.hcl', 'agent.hcl'],
  )
  for (const folder of ['kubernetes', 'compose']) {
    mkdirSync(join(directory, folder))
    for (const [name, text] of texts) {
      const content = folder === 'kubernetes' ? text : readFileSync(join(ROOT, 'deploy/container', name), 'utf8')
      const file = join(directory, folder, name)
      writeFileSync(file, content)
      const member = name === 'server.hcl' ? 'outpost-server-1' : 'w1'
      const { config } = loadConfig({ paths: [file, join(keys, member, 'cluster.hcl')] })
      assert.equal(config.server.enabled, name === 'server.hcl')
    }
  }
  const compose = parse(readFileSync(join(ROOT, 'deploy/container/compose.yaml'), 'utf8')) as { services: object }
  assert.deepEqual(Object.keys(compose.services), ['nats', 'server', 'agent'])
})
