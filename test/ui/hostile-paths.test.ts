/** Names that would change the path of a request: a browser removes `.` and `..` from a URL, and with them the segments before. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { ApiError, listSecrets, read, secrets, secretsPath, send } from '../../ui/api/client.ts'
import { openFile } from '../../ui/views/files/file-api.ts'
import { followRequest } from '../../ui/views/logs/stream/log-target.ts'
import { kvPath } from '../../ui/views/secrets/secret-path.ts'

/** Records the paths that a browser would request. */
function recordRequests(t: TestContext): readonly string[] {
  const requested: string[] = []
  t.mock.method(globalThis, 'fetch', (url: string) => {
    requested.push(new URL(url, 'http://127.0.0.1').pathname)
    return Promise.resolve(new Response('{"data":{"keys":[]}}'))
  })
  return requested
}

test('a name of dots is refused before a request is sent', async (t) => {
  const requested = recordRequests(t)
  const mount = { path: 'secret/', version: 2 as const }
  const attempts: readonly (() => Promise<unknown>)[] = [
    () => secrets(kvPath(mount, 'metadata', '../../sys/policies/acl/root'), { method: 'DELETE' }),
    () => secrets('sys/policies/acl/..', { method: 'DELETE' }),
    () => secrets('secret/data/a/./b'),
    () => listSecrets('auth/userpass/users/../../../sys/auth'),
    () => read('/v1/node/{id}/allocations', { params: { id: '..' } }),
    () => send(`/v1/client/allocation/${encodeURIComponent('..')}/gc`, { method: 'PUT' }),
    () => send('/v1/client/allocation/%2E%2e/gc', { method: 'PUT' }),
    () => openFile('..', '/secret'),
    () => {
      const selection = { type: '*', lines: 1, since: undefined, grep: '', isInverted: false, context: 0 } as const
      const target = { kind: 'job', namespace: 'default', job: '..' } as const
      return send(followRequest(target, { ...selection, cursor: undefined }, new Map()).url)
    },
  ]
  for (const attempt of attempts) {
    await assert.rejects(attempt, (error) => error instanceof ApiError && error.status === 400, String(attempt))
  }
  assert.deepEqual(requested, [])
})

test('other names reach the path that they name', async (t) => {
  const requested = recordRequests(t)
  const names = ['..hidden', 'a..b', '...', '%2e%2e', 'a?b#c', '__proto__', 'back\\..\\slash', 'http://evil.example']
  for (const name of names) {
    await secrets(`secret/data/${name}`)
    await send('/v1/client/fs/cat/id', { query: { path: '../../etc/passwd' } })
  }
  const expected = names.flatMap((name) => [secretsPath(`secret/data/${name}`), '/v1/client/fs/cat/id'])
  assert.deepEqual(requested, expected)
})
