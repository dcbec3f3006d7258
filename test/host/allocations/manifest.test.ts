import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { completeAllocation } from '../../../src/host/allocations/allocation-scan.ts'
import {
  MANIFEST_BYTES_MAX,
  manifestOf,
  parseManifest,
  readManifest,
} from '../../../src/host/allocations/manifest-parser.ts'

const ID = '6f1c0b9e-2f0a-4a51-9d0c-3f1f7a3f0001'
const fixture = (name: string) =>
  readFileSync(join(import.meta.dirname, '../../../fixtures/alloc', `${name}.json`), 'utf8')

function parsed(text: string) {
  const result = parseManifest(text, ID)
  assert.ok('manifest' in result, 'fault' in result ? result.fault : '')
  return result.manifest
}

function faultOf(text: string): string {
  const result = parseManifest(text, ID)
  assert.ok('fault' in result, `accepted: ${text.slice(0, 60)}`)
  return result.fault
}

test('a complete manifest is parsed and unknown fields are ignored', () => {
  const { tasks, ...rest } = parsed(fixture('two-tasks'))
  assert.deepEqual(rest, {
    name: 'web.api[0]',
    namespace: 'apps',
    jobId: 'web',
    taskGroup: 'api',
    desiredStatus: 'run',
    clientStatus: 'running',
    createTimeMs: 1790000000000,
  })
  assert.deepEqual(tasks?.get('server'), {
    name: 'server',
    state: 'running',
    failed: false,
    startedAtMs: Date.UTC(2026, 10, 21, 10),
    finishedAtMs: undefined,
    pids: [4242],
    logsDisabled: false,
    maxFiles: 3,
    maxFileSizeMb: 1,
  })
  const odd = tasks?.get('constructor')
  assert.equal(odd?.failed, true)
  assert.equal(odd?.finishedAtMs, Date.UTC(2026, 10, 21, 10, 0, 1, 123))
  assert.deepEqual([odd?.maxFiles, odd?.maxFileSizeMb, odd?.pids], [10, 10, []])
})

test('the exit code of a task is kept, and one in another form is no fault', () => {
  const exitCodeOf = (text: string) =>
    parsed(`{"Tasks":{"web":{"State":"dead","ExitCode":${text}}}}`).tasks?.get('web')?.exitCode
  assert.deepEqual(['3', '0', 'null', '"3"', '-1', '{}'].map(exitCodeOf), [
    3,
    0,
    undefined,
    undefined,
    undefined,
    undefined,
  ])
  const complete = completeAllocation(parsed('{"Tasks":{"web":{"State":"dead","ExitCode":3}}}'), {
    id: ID,
    directory: '/a',
    bornMs: 1,
    collected: false,
  })
  assert.equal(parsed(JSON.stringify(manifestOf(complete))).tasks?.get('web')?.exitCode, 3)
})

test('a fault names the field and never its content', () => {
  const expected: Record<string, string> = {
    'half-written': 'alloc.json is not JSON, or only half written',
    'unknown-state': 'Tasks: entry 1: State must be pending, running or dead',
    'pids-of-text': 'Tasks: entry 1: Pids must be a whole number from 2 to 4194304',
    'task-outside': 'Tasks: name 1 cannot be the name of a task directory',
    'tasks-list': 'Tasks must be an object',
    'name-list': 'Name must be a string',
    'unknown-status': 'ClientStatus must be pending, running, complete, failed or lost',
    'bad-time': 'Tasks: entry 1: FinishedAt must be an RFC 3339 time',
    text: 'alloc.json must be a JSON object',
    'other-id': 'ID is not the name of its directory',
  }
  for (const [name, fault] of Object.entries(expected)) {
    assert.equal(faultOf(fixture(name)), fault, name)
    assert.ok(!fault.includes('PLANTED'))
  }
})

test('null counts as absent, limits are enforced, and nothing throws', () => {
  assert.deepEqual(parsed('{"Name":null,"Tasks":null,"CreateTime":0,"Namespace":""}'), {})
  assert.equal(parsed('{"Tasks":{}}').tasks?.size, 0)
  assert.equal(
    parsed('{"Tasks":{"a":{"State":"pending","StartedAt":"0001-01-01T00:00:00Z"}}}').tasks?.get('a')?.startedAtMs,
    undefined,
  )
  assert.match(faultOf(`{"Name":"${'x'.repeat(MANIFEST_BYTES_MAX)}"}`), /larger than 1048576 bytes/)
  assert.match(faultOf(`{"Name":"${'x'.repeat(2000)}"}`), /^Name is too long$/)
  const many = Object.fromEntries(Array.from({ length: 1001 }, (_, i) => [`t${i}`, { State: 'dead' }]))
  assert.match(faultOf(JSON.stringify({ Tasks: many })), /more than 1000/)
  for (const text of [
    '',
    ' ',
    '[]',
    'null',
    '1',
    '{',
    '{"CreateTime":-1}',
    '{"CreateTime":1e999}',
    '{"Tasks":{"alloc":{"State":"dead"}}}',
    '{"Tasks":{"a":{"State":"dead","MaxFiles":0}}}',
    '{"Tasks":{"a":null}}',
    '{"Tasks":{"a":{"State":"dead","Pids":[0]}}}',
    '{"Tasks":{"a":{"State":"running","Pids":[1]}}}',
    '{"Tasks":{"a":{"State":"running","Pids":[-4242]}}}',
    '{"Tasks":{"a":{"State":"dead","Pids":[1.5]}}}',
    '{"Tasks":{"":{"State":"dead"}}}',
    '['.repeat(100_000),
  ]) {
    assert.ok(faultOf(text).length < 200, text.slice(0, 40))
  }
})

test('a creation time in nanoseconds keeps its millisecond', () => {
  // A number in JSON has 53 bits, and nanoseconds since 1970 have 61.
  for (let ms = 1_790_000_000_000; ms < 1_790_000_001_000; ms++) {
    assert.equal(parsed(`{"CreateTime":${ms}000000}`).createTimeMs, ms)
    assert.equal(parsed(`{"CreateTime":${ms}999000}`).createTimeMs, ms)
  }
})

test('an allocation is equal after serializing and parsing', () => {
  const place = { id: ID, directory: '/x', bornMs: 5, collected: false }
  const before = completeAllocation(parsed(fixture('two-tasks')), place)
  const again = readManifest(JSON.parse(JSON.stringify(manifestOf(before))), ID)
  assert.ok('manifest' in again)
  assert.deepEqual(completeAllocation(again.manifest, place), before)
})
