/** A server in this process with the `cloud` engine, its AWS endpoint, and HTTP requests to it. */
import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { AwsEndpoint } from './aws/endpoint.ts'
import { freshServer } from './secrets-server.ts'

export interface Answered {
  readonly status: number
  readonly text: string
  /** An empty object where there is no body. */
  readonly body: Readonly<Record<string, unknown>> & {
    readonly data?: Readonly<Record<string, unknown>> | null
    readonly errors?: readonly string[]
  }
}

export async function cloudAgent(t: TestContext) {
  const aws = await AwsEndpoint.open(t)
  const { key, user } = aws.root()
  const { agent, directory, keys, run, token } = await freshServer(t, '-key-shares=1 -key-threshold=1')
  const opened = await run('operator unseal -', `${keys[0]}\n`)
  assert.equal(opened.code, 0, opened.stderr)
  const log: string[] = []
  /** Sends a request as the stock command does: PUT for a write, `list=true` for a list. */
  const ask = async (method: string, path: string, body?: unknown, by = token): Promise<Answered> => {
    const answer = await fetch(`${agent.url}/v1/${path}`, {
      method,
      headers: { 'X-Vault-Request': 'true', 'X-Vault-Token': by, 'User-Agent': 'Go-http-client/1.1' },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    const text = await answer.text()
    log.push(text)
    return { status: answer.status, text, body: text === '' ? {} : (JSON.parse(text) as Answered['body']) }
  }
  /** Like `ask`, but fails for a status of 400 and above. */
  const good = async (...given: Parameters<typeof ask>) => {
    const answer = await ask(...given)
    assert.ok(answer.status < 400, `${given[0]} ${given[1]}: ${answer.status} ${answer.text}`)
    return answer
  }
  const root = {
    access_key: key.id,
    secret_key: key.secret,
    region: 'us-east-1',
    iam_endpoint: aws.url,
    sts_endpoint: aws.url,
    max_retries: '0',
  }
  /** Names of users that the server has created. */
  const users = () => [...aws.account.users.keys()].filter((name) => name !== user.name).sort()
  return { agent, ask, aws, directory, good, key, log, root, rootUser: user, token, users }
}
