/** Host names on a loopback listener. */
import assert from 'node:assert/strict'
import { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import { test } from 'node:test'
import { ServedHosts } from '../../src/http/served-hosts.ts'

function requestFor(host: string): IncomingMessage {
  const socket = new Socket()
  Object.defineProperty(socket, 'localAddress', { value: '127.0.0.1' })
  const request = new IncomingMessage(socket)
  request.headers = { host }
  return request
}

test('a name that a reload removes is refused, also after it was accepted before', () => {
  const hosts = new ServedHosts(['tools.example'])
  const check = () => hosts.check(requestFor('tools.example:4646'))
  check()
  hosts.set(['other.example'])
  assert.throws(check, { code: 'permission_denied' })
  hosts.check(requestFor('other.example'))
  hosts.check(requestFor('localhost:4646'))
  hosts.set(['tools.example'])
  check()
})
