/** Content types for browsers, and files that change while they are sent. */
import assert from 'node:assert/strict'
import { appendFileSync, truncateSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { sniffContentType } from '../../../src/host/files/sniff.ts'
import { startEdge } from '../../helpers/edge.ts'
import { answersIn, ask, listen } from '../../helpers/raw-http.ts'
import { ALLOC } from '../../helpers/allocation.ts'

const SCRIPT = '<script>alert(document.cookie)</script>'
const DANGEROUS: Readonly<Record<string, string | Buffer>> = {
  html: `<!DOCTYPE html><html>${SCRIPT}</html>`,
  'spaced.html': `\n\t  <HtMl>${SCRIPT}`,
  'only-script': SCRIPT,
  comment: `<!-- x -->${SCRIPT}`,
  iframe: `<iframe src=javascript:alert(1)>`,
  svg: `<svg xmlns="http://www.w3.org/2000/svg">${SCRIPT}</svg>`,
  xml: `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg">${SCRIPT}</svg>`,
  xhtml: `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">${SCRIPT}</html>`,
  bom: Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(`<html>${SCRIPT}`)]),
  utf16: Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(`<html>${SCRIPT}`, 'utf16le')]),
}

test('nothing that a task wrote is served as executable content', async (t) => {
  const edge = await startEdge(t)
  for (const [name, content] of Object.entries(DANGEROUS)) {
    writeFileSync(join(edge.directory, 'web/local', name), content)
    writeFileSync(join(edge.directory, 'alloc/logs/web.stdout.0'), content)
    const path = `path=web/local/${name}`
    for (const [endpoint, query] of [
      ['cat', path],
      ['readat', `${path}&offset=0&limit=-1`],
      ['stream', `${path}&offset=0&follow=false`],
      ['logs', 'task=web&plain=true'],
      ['logs', 'task=web'],
    ] as const) {
      const answer = await ask(edge.port, 'GET', `/v1/client/fs/${endpoint}/${ALLOC}?${query}`, 'Accept: text/html,*/*')
      const what = `${endpoint} ${name}`
      assert.equal(answer.status, 200, what)
      assert.match(
        answer.headers.get('content-type') ?? '',
        /^(text\/plain(; charset=utf-(8|16le))?|application\/json)$/,
        what,
      )
      assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', what)
      if (endpoint !== 'cat' && endpoint !== 'readat') continue
      assert.deepEqual(answer.body, Buffer.from(content), what)
      assert.equal(
        answer.headers.get('content-security-policy'),
        "default-src 'none'; style-src 'unsafe-inline'; sandbox",
      )
      assert.equal(answer.headers.get('x-xss-protection'), '1; mode=block')
    }
  }
})

test('an error that quotes the request is not HTML either', async (t) => {
  const edge = await startEdge(t)
  for (const target of [
    `/v1/client/fs/cat/${ALLOC}?path=${encodeURIComponent(SCRIPT)}`,
    '/v1/<script>',
    `/v1/client/fs/ls/<script>`,
  ]) {
    const answer = await ask(edge.port, 'GET', target)
    assert.match(answer.headers.get('content-type') ?? '', /^(text\/plain; charset=utf-8|application\/json)$/)
    assert.equal(answer.headers.get('x-content-type-options'), 'nosniff')
  }
})

test('the content type follows from the first bytes', () => {
  const table: readonly (readonly [string | Buffer, string])[] = [
    ['plain words', 'text/plain; charset=utf-8'],
    ['\x1b[31mred\x1b[0m', 'text/plain; charset=utf-8'],
    [Buffer.from([0, 1, 2]), 'application/octet-stream'],
    ['<html>', 'text/html; charset=utf-8'],
    ['  <!doctype HTML>', 'text/html; charset=utf-8'],
    ['<htmlx>', 'text/plain; charset=utf-8'],
    ['<?xml ', 'text/xml; charset=utf-8'],
    ['%PDF-1.7', 'application/pdf'],
    [Buffer.from('89504e470d0a1a0a00', 'hex'), 'image/png'],
    [Buffer.from('ffd8ffe0', 'hex'), 'image/jpeg'],
    ['GIF89a', 'image/gif'],
    [Buffer.from('1f8b0800', 'hex'), 'application/x-gzip'],
    ['PK\x03\x04', 'application/zip'],
    [Buffer.from('feff0041', 'hex'), 'text/plain; charset=utf-16be'],
    [Buffer.from('efbbbf41', 'hex'), 'text/plain; charset=utf-8'],
    ['RIFF\0\0\0\0WEBPVP', 'image/webp'],
    [`${' '.repeat(511)}<html>`, 'text/plain; charset=utf-8'],
  ]
  for (const [bytes, type] of table) {
    assert.equal(
      sniffContentType(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes),
      type,
      JSON.stringify(bytes),
    )
  }
})

const SIZE = 48 << 20

test('the response of a shrinking file breaks, that of a growing file ends at its Content-Length', async (t) => {
  const edge = await startEdge(t)
  const file = join(edge.directory, 'web/local/big')
  for (const endpoint of ['cat', 'readat'] as const) {
    for (const change of ['shrink', 'grow'] as const) {
      writeFileSync(file, Buffer.alloc(SIZE, 'x'))
      const socket = connect({ port: edge.port, host: '127.0.0.1' })
      const target = `/v1/client/fs/${endpoint}/${ALLOC}?path=web/local/big&offset=0&limit=-1`
      socket.write(`GET ${target} HTTP/1.1\r\nHost: x\r\n${change === 'grow' ? 'Connection: close\r\n' : ''}\r\n`)
      await new Promise((resolve) => socket.once('readable', resolve))
      if (change === 'shrink') truncateSync(file, 1000)
      else appendFileSync(file, 'more')
      const { bytes, end } = await listen(socket, {})
      assert.notEqual(end, 'open', 'the client does not wait for the rest')
      const [answer] = answersIn(bytes)
      assert.equal(answer?.headers.get('content-length'), String(SIZE))
      assert.equal(answer?.whole, change === 'grow', `${endpoint} ${change}`)
    }
  }
})
