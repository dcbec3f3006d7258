/** An agent with a secrets core for tests of the web interface, and requests to it as another client would send. */
import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { startAgent } from '../agent-process.ts'
import { freshProcess } from '../secrets-server.ts'
import { openUi } from './page.ts'

export interface SecretsAgent {
  readonly url: string
  readonly token: string
  /** Sends a request to a path below `/v1/` and returns `data` of the response. */
  readonly call: (method: string, path: string, body?: unknown, token?: string) => Promise<Record<string, unknown>>
  /** Creates a token with these rules. */
  readonly tokenWith: (rules: string) => Promise<string>
  /** `at` is another address of the agent. */
  readonly open: (t: TestContext, path: string, token?: string, at?: string) => ReturnType<typeof openUi>
}

export async function secretsAgent(t: TestContext): Promise<SecretsAgent> {
  // In a directory of its own, which the agent removes.
  const agent = await startAgent(t, ['-dev', '-dev-no-demo', '-http-port', '0'])
  return clientOf(agent.url, /Token: (\S+)/.exec(agent.stdout())?.[1] ?? '')
}

/** With a KV engine at `secret/`, and the keys that unseal it. */
export async function sealableAgent(t: TestContext): Promise<SecretsAgent & { readonly unseal: () => Promise<void> }> {
  const { agent, keys, token } = await freshProcess(t)
  const client = clientOf(agent.url, token)
  const unseal = async () => {
    for (const key of keys.slice(0, 2)) await client.call('PUT', 'sys/unseal', { key })
  }
  await unseal()
  await client.call('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  return { ...client, unseal }
}

/** A client with a root token. */
export function clientOf(url: string, root: string): SecretsAgent {
  let policies = 0
  const call: SecretsAgent['call'] = async (method, path, body, token = root) => {
    const response = await fetch(`${url}/v1/${path}`, {
      method,
      headers: { 'X-Vault-Token': token },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`)
    const parsed = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>
    return (parsed['auth'] ?? parsed['data'] ?? parsed) as Record<string, unknown>
  }
  return {
    url,
    token: root,
    call,
    async tokenWith(rules) {
      const name = `rules-${++policies}`
      await call('PUT', `sys/policies/acl/${name}`, { policy: rules })
      const { client_token } = await call('POST', 'auth/token/create', { policies: [name] })
      return String(client_token)
    },
    open: (test, path, token = root, at = url) => openUi(test, { url: at, path, token }),
  }
}
