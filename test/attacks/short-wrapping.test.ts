/** A caller, or a proxy, requests wrapping for less than a second: the answer must not be sent in clear text. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'

test('an answer that requires wrapping is never sent unwrapped for lack of a TTL', async (t) => {
  const world = await CoreWorld.open(t)
  const ask = async (ttl: string) => {
    const headers = { 'X-Vault-Wrap-TTL': ttl }
    return await world.ask('GET', 'auth/token/lookup-self', undefined, { headers })
  }
  for (const ttl of ['1ns', '0.0000001s', '999ms', '0.4s', '1us']) {
    const { status, text } = await ask(ttl)
    assert.equal(status, 400, ttl)
    assert.match(text, /X-Vault-Wrap-TTL header: a duration must be 0 or at least a second/)
  }
  for (const ttl of ['-1', '-1s', '-0.5s']) {
    const { status, text } = await ask(ttl)
    assert.equal(status, 400, ttl)
    assert.match(text, /requested wrap ttl cannot be negative/)
  }
  for (const ttl of ['1', '1s', '1500ms']) assert.ok((await ask(ttl)).body['wrap_info'], ttl)
  for (const ttl of ['', '0', '0s', '0h0m']) assert.equal((await ask(ttl)).body['wrap_info'], null, ttl)
})
