/** An endpoint that is not AWS, or was taken over: nothing that it answers harms the server, and no key is forgotten for it. */
import assert from 'node:assert/strict'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { ENTRY_PATHS } from '../../../src/engines/cloud/aws/entries.ts'
import { readResponse } from '../../../src/engines/cloud/aws/response-limits.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'

const xml = (action: string, inner: string) =>
  `<${action}Response xmlns="x"><${action}Result>${inner}</${action}Result></${action}Response>`
const bomb = `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>`
const IDENTITY = '<Arn>arn:aws:iam::123456789012:user/root-user</Arn>'
const ESCAPE = '\u001b]0;owned\u0007'

type Answer = (action: string, response: ServerResponse) => void

const whole =
  (text: string, status = 200): Answer =>
  (_action, response) =>
    void response.writeHead(status, { 'content-type': 'text/xml' }).end(text)

/** A response of AWS and the resulting error. */
const ANSWERS: Readonly<Record<string, readonly [Answer, RegExp]>> = {
  empty: [whole(''), /no access key|no credentials|is not an AWS response/],
  page: [whole('<html><body>Sign in<br></body></html>'), /no access key|no credentials|is not an AWS response/],
  json: [whole('{"AccessKeyId":"AKIA"}'), /is not an AWS response|no access key|no credentials/],
  half: [whole('<CreateUserResponse><CreateUserResult>'), /is not an AWS response|no access key|no credentials/],
  bomb: [whole(`${bomb}<a>&b;&b;&b;</a>`), /document type/],
  deep: [whole('<a>'.repeat(1000)), /too deeply nested/],
  deepWithText: [whole('<a>/>'.repeat(1000)), /too deeply nested/],
  deepWithAttributes: [whole('<a b="/>">'.repeat(1000)), /too deeply nested/],
  wide: [whole(xml('CreateUser', '<a/>'.repeat(30_000))), /too many elements/],
  huge: [(_action, response) => flood(response), /more than 262144 bytes/],
  redirect: [whole('', 301), /the response from .* is not an AWS response: HTTP 301/],
  teapot: [whole('<html>no</html>', 418), /Unknown/],
  error: [
    whole(
      `<ErrorResponse><Error><Code>Denied${ESCAPE}</Code><Message>${'x'.repeat(5000)}${ESCAPE}</Message></Error></ErrorResponse>`,
      400,
    ),
    /^[^\p{Cc}]{1000,1200}$/u,
  ],
}

function flood(response: ServerResponse): void {
  const chunk = Buffer.alloc(64 * 1024, '<a>x</a>')
  const more = () => {
    while (!response.destroyed && response.write(chunk));
  }
  response.writeHead(200, { 'content-type': 'text/xml' })
  response.on('drain', more)
  more()
}

async function strange(t: TestContext) {
  const world = await CloudWorld.open(t)
  // It tells its account, so that what comes after it is asked for.
  const own: { answer: Answer; isKnown: boolean } = { answer: whole(''), isKnown: true }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const action = new URLSearchParams(Buffer.concat(chunks).toString()).get('Action') ?? ''
      const answer = own.isKnown && action === 'GetCallerIdentity' ? whole(xml(action, IDENTITY)) : own.answer
      answer(action, response)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { world, own, url }
}

test('refuses any invalid response with a text and forgets no intent', async (t) => {
  const { own, url, world } = await strange(t)
  await world.userRole('app')
  await world.good('POST', 'cloud/roles/deploy', {
    credential_type: 'assumed_role',
    role_arns: 'arn:aws:iam::123456789012:role/deploy',
  })
  await world.good('POST', 'cloud/config/root', { iam_endpoint: url, sts_endpoint: url })
  const before = process.memoryUsage.rss()
  for (const [name, [answer, told]] of Object.entries(ANSWERS)) {
    own.answer = answer
    for (const role of ['app', 'deploy']) {
      const { body, status } = await world.ask('GET', `cloud/creds/${role}?wait=false`)
      assert.ok(status === 400 || status === 502, `${name}: ${status}`)
      assert.match(body.errors[0] ?? '', told, name)
    }
    const rotated = await world.ask('POST', 'cloud/config/rotate-root')
    assert.ok(rotated.status >= 400, name)
  }
  assert.ok(process.memoryUsage.rss() - before < 256 * 1024 * 1024)
  own.isKnown = false
  await world.good('POST', 'cloud/config/root', { max_retries: 0, region: 'eu-west-1' })
  own.answer = whole(xml('GetCallerIdentity', ''))
  const nowhere = await world.ask('GET', 'cloud/creds/app?wait=false')
  assert.deepEqual(nowhere.body.errors, ['Error creating IAM user: the response has no account'])
  assert.equal((await world.good('GET', 'cloud/config/root')).body.data['access_key'], world.rootKey.id)
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.ok((storage?.list(ENTRY_PATHS.intents).length ?? 0) > 0, 'users that may have been made are looked for')
  await world.good('POST', 'cloud/config/root', { iam_endpoint: world.aws.url, sts_endpoint: world.aws.url })
  await world.good('POST', 'cloud/config/rotate-root')
})

test('keeps the old key if the response has no new one, and deletes the new one', async (t) => {
  const { own, url, world } = await strange(t)
  const { key, user } = { key: world.rootKey, user: world.rootUser }
  own.answer = (action, response) => {
    if (action === 'GetUser')
      return whole(xml(action, `<User><UserName>${user.name}</UserName></User>`))(action, response)
    if (action !== 'ListAccessKeys') return whole(xml(action, ''))(action, response)
    const member = `<member><AccessKeyId>${key.id}</AccessKeyId></member>`
    return whole(xml(action, `<AccessKeyMetadata>${member}</AccessKeyMetadata>`))(action, response)
  }
  await world.good('POST', 'cloud/config/root', { iam_endpoint: url })
  const answer = await world.ask('POST', 'cloud/config/rotate-root')
  assert.deepEqual(
    [answer.status, answer.body.errors],
    [502, ['error calling CreateAccessKey: the response has no access key']],
  )
  assert.equal((await world.good('GET', 'cloud/config/root')).body.data['access_key'], key.id)
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.equal(storage?.list(ENTRY_PATHS.keyIntents).length, 1)
})

test('aborts a response that does not end', async () => {
  let isClosed = false
  async function* drops() {
    try {
      for (;;) {
        await new Promise((resolve) => setTimeout(resolve, 5))
        yield Buffer.from(' ')
      }
    } finally {
      isClosed = true
    }
  }
  await assert.rejects(readResponse(drops(), 50), /was not complete within 0.05 s/)
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.ok(isClosed)
  assert.deepEqual(await readResponse(Readable.from([Buffer.from('<a><b/></a>')]), 1000), Buffer.from('<a><b/></a>'))
})
