/**
 * Every path of every engine is asked with a name in mixed case. An engine that folds a name without declaring it lets a
 * caller pass the rules about that name (docs/decisions/081), so it fails here.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { cloud } from '../../src/engines/cloud/cloud.ts'
import { cubbyhole } from '../../src/engines/cubbyhole/cubbyhole.ts'
import { type Engine, path, type Path } from '../../src/engines/framework/engine.ts'
import { type EngineField, inPath } from '../../src/engines/framework/fields.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { totp } from '../../src/engines/totp/totp.ts'
import { coreEngines } from '../../src/daemon/modules/engines.ts'
import { findParameterFault } from '../../src/secrets/policies/parameter-rules.ts'
import { defaultCanonical } from '../../src/secrets/policies/policy-answer.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

const NAME = ' MixedName '
const CASE = ['toLowerCase', 'toLocaleLowerCase', 'toUpperCase', 'toLocaleUpperCase', 'normalize'] as const
const METHODS = [...CASE, 'trim', 'trimStart', 'trimEnd'] as const
const VERBS = {
  read: 'GET',
  list: 'LIST',
  scan: 'SCAN',
  update: 'POST',
  create: 'POST',
  patch: 'PATCH',
  delete: 'DELETE',
}

/** Fields whose values are no names, or where the form is that of a number, a key or a header. */
const NO_NAMES: ReadonlySet<string> = new Set([
  'algorithm', // a word of a list
  'key', // base32
])

/** Calls `work`; returns the places where a text with the name was folded meanwhile. */
async function foldsDuring(
  methods: readonly (typeof METHODS)[number][],
  work: () => Promise<unknown>,
): Promise<string[]> {
  const texts: object = String.prototype
  const found: string[] = []
  const originals = methods.map((method) => [method, String.prototype[method]] as const)
  for (const [method, original] of originals) {
    Object.defineProperty(texts, method, {
      configurable: true,
      writable: true,
      value(this: string, ...args: []) {
        const result: string = Reflect.apply(original, this, args)
        if (result !== this && this.includes('MixedName')) found.push(placeOf(new Error().stack ?? ''))
        return result
      },
    })
  }
  try {
    await work()
  } finally {
    for (const [method, original] of originals) {
      Object.defineProperty(texts, method, { configurable: true, writable: true, value: original })
    }
  }
  return [...new Set(found)]
}

/** The first two calls in the stack that are in the sources. */
function placeOf(stack: string): string {
  const frames = stack.split('\n').filter((line) => line.includes('/src/') || line.includes('folded-paths'))
  const places = frames.map((line) => /\/(?:src|test)\/(\S+?):\d+:\d+/.exec(line)?.[1] ?? line)
  return [...new Set(places)].slice(1, 4).join(' < ')
}

function valueOf({ kind }: EngineField<unknown>): unknown {
  return { string: 'x', integer: 1, number: 1, boolean: true, object: {}, array: ['x'] }[kind]
}

/** Each parameter of the path that does not fold, and each field of the body that does not, gets the name in turn. */
async function undeclaredFolds(world: CoreWorld, mount: string, declared: Path): Promise<string[]> {
  const found: string[] = []
  const body = Object.fromEntries(Object.entries(declared.fields).map(([name, field]) => [name, valueOf(field)]))
  const verbs = Object.keys(declared.handlers) as (keyof typeof declared.handlers)[]
  for (const [name, { fold, inPath: isParameter = false, kind }] of Object.entries(declared.fields)) {
    if (fold || NO_NAMES.has(name) || (!isParameter && kind !== 'string' && kind !== 'array')) continue
    for (const data of isParameter ? [{}, body] : [{ [name]: NAME }, { ...body, [name]: NAME }]) {
      for (const verb of verbs) {
        const at = mount + pathWith(declared, isParameter ? name : undefined)
        const method = VERBS[verb]
        const isQuery = verb === 'read' || verb === 'list' || verb === 'scan' || verb === 'delete'
        // White space around a value of the body never counts in a rule.
        const places = await foldsDuring(isParameter ? METHODS : CASE, () =>
          world.ask(method, at, isQuery ? undefined : data),
        )
        found.push(...places.map((place) => `${method} ${mount}${declared.pattern} ${name}: ${place}`))
      }
    }
  }
  return found
}

function pathWith({ pattern }: Path, meant: string | undefined): string {
  const segments = pattern.split('/').map((segment) => {
    if (!segment.startsWith(':')) return segment
    return segment.replace(/^:|[*+]$/g, '') === meant ? encodeURIComponent(NAME) : 'other'
  })
  return segments.join('/')
}

async function worldOf(t: Parameters<typeof CoreWorld.open>[0], engines: readonly Engine[]): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines })
  for (const { isSingle, kind, type } of engines) {
    if (isSingle) continue
    const at = kind === 'auth' ? `sys/auth/${type}` : `sys/mounts/${type}`
    const { status, text } = await world.ask('POST', at, { type })
    assert.equal(status, 204, text)
  }
  return world
}

/**
 * Sealing, key shares and replication change the state of the whole core, and take no names; so does the end of the caller's token. A
 * check of policies compares a path with rules in several spellings.
 */
const LEFT_OUT =
  /^sys\/(?:seal|unseal|step-down|rekey|generate-root|rotate|replication|init|internal\/ui\/policy-check)|^auth\/token\/revoke-self/

test('no engine folds a name that its path does not declare', async (t) => {
  const engines = [kv, quickUserpass, approle, totp, cloud]
  assert.deepEqual(
    coreEngines.map(({ type }) => type).sort(),
    [...engines, cubbyhole].map(({ type }) => type).sort(),
    'all engines are asked',
  )
  const world = await worldOf(t, engines)
  const found: string[] = []
  let asked = 0
  for (const { paths, record } of world.core.open.mounts.all()) {
    for (const declared of paths.paths) {
      if (LEFT_OUT.test(record.path + declared.pattern)) continue
      asked += 1
      found.push(...(await undeclaredFolds(world, record.path, declared)))
      assert.equal((await world.ask('GET', 'auth/token/lookup-self')).status, 200, `after ${declared.pattern}`)
    }
  }
  assert.ok(asked > 150, `${asked} paths`)
  assert.deepEqual([...new Set(found)], [])
})

test('evaluates policies without a server with the same folds', async (t) => {
  const world = await worldOf(t, [kv, quickUserpass, approle, totp, cloud])
  for (const { paths, record } of world.core.open.mounts.all()) {
    for (const declared of paths.paths) {
      for (const parameter of [undefined, ...Object.keys(declared.fields)]) {
        const given = decodeURIComponent(record.path + pathWith(declared, parameter))
        assert.equal(defaultCanonical(given).path, world.core.canonical(given).path, declared.pattern)
      }
      const { fields } = defaultCanonical(record.path + pathWith(declared, undefined))
      for (const [name, { fold, inPath: isParameter }] of Object.entries(declared.fields)) {
        if (!fold || isParameter) continue
        const value = fold === 'case' ? 'MIXED' : ' MIXED '
        const rules = { required: [], allowed: undefined, denied: new Map([[name, ['mixed']]]) }
        assert.ok(findParameterFault(rules, { [name]: value }, fields), `${record.path}${declared.pattern} ${name}`)
      }
    }
  }
})

test('detects an engine that folds a name without declaring it', async (t) => {
  const sloppy: Engine = {
    type: 'sloppy',
    description: 'folds names',
    paths: [
      path({
        pattern: 'thing/:name',
        summary: 'A thing',
        fields: { name: inPath('Its name') },
        read: ({ name }) => ({ data: { name: name.toLowerCase() } }),
      }),
    ],
  }
  const world = await worldOf(t, [sloppy])
  const [declared = assert.fail()] = sloppy.paths
  assert.match((await undeclaredFolds(world, 'sloppy/', declared)).join('\n'), /^GET sloppy\/thing\/:name name: /)
})
