/** `/v1/agent/monitor`, against a log of its own: levels, forms, slow readers, and that nothing is left behind. */
import assert from 'node:assert/strict'
import { openSync } from 'node:fs'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'
import { agentMonitor } from '../../src/telemetry/monitor.ts'
import { createLogger, DescriptorOutput, type Logger, LogSink } from '../../src/platform/log.ts'
import { EVERYBODY, startEdge } from '../helpers/edge.ts'
import { ask, raw } from '../helpers/raw-http.ts'
import { NODE } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

interface Monitored {
  readonly port: number
  readonly logger: Logger
  /** Everything that a caller of this query is sent, until it leaves. */
  readonly watch: (query: string) => {
    readonly text: () => string
    readonly lines: () => string[]
    readonly leave: () => Promise<void>
  }
}

async function startMonitored(t: TestContext, options: { agent?: boolean } = {}): Promise<Monitored> {
  const sink = new LogSink({ output: new DescriptorOutput(openSync('/dev/null', 'w')), level: 'warn' })
  const identity = { ...EVERYBODY, allowsAgent: () => options.agent ?? true }
  const { port } = await startEdge(t, {
    operations: [agentMonitor.in({ sink, nodeId: NODE })],
    resolve: () => identity,
  })
  return {
    port,
    logger: createLogger(sink),
    watch(query) {
      let text = ''
      let leaving = false
      const request = `GET /v1/agent/monitor?${query} HTTP/1.1\r\nHost: x\r\n\r\n`
      const until = (heard: string) => ((text = heard), leaving)
      const over = raw({ port, until, patienceMs: 60_000 }, request)
      const lines = () =>
        [...text.matchAll(/"Data":"([^"]*)"/g)]
          .map(([, data = '']) => Buffer.from(data, 'base64').toString())
          .join('')
          .split('\n')
          .filter((line) => line !== '')
      return { text: () => text, lines, leave: async () => ((leaving = true), void (await over)) }
    },
  }
}

test('lines of level info and above are sent as frames regardless of the log level, with heartbeats', async (t) => {
  const { watch, logger } = await startMonitored(t)
  assert.equal(logger.enabled('info'), false)
  const watched = watch('')
  await eventually(() => watched.text().includes('{}'), 'a heartbeat at once')
  assert.match(watched.text(), /^HTTP\/1.1 200 OK\r\n[^]*Content-Type: application\/json\r\n/)
  assert.equal(logger.enabled('info'), true)
  assert.equal(logger.enabled('debug'), false)
  logger.debug('not this')
  logger.named('http').info('this', { path: '/x', odd: 'a b' })
  await eventually(() => watched.lines().length > 0, 'the line')
  assert.match(
    watched.lines()[0] ?? '',
    /^\d{4}-\d\d-\d\dT[\d:.]+Z \[INFO\] {2}outpost\.http: this: path=\/x odd="a b"$/,
  )
  assert.match(watched.text(), /\{"Data":"[\w+/=]+","FileEvent":"log"\}/)
  await eventually(() => watched.text().split('{}').length > 2, 'heartbeats go on')
  assert.equal(watched.lines().length, 1, 'nothing is logged about the stream itself')
  await watched.leave()
  await eventually(() => !logger.enabled('info'), 'the monitor has no listener')
})

test('JSON, plain text and a lower level can be requested', async (t) => {
  const { watch, logger } = await startMonitored(t)
  const json = watch('log_json=true&log_level=TRACE&node_id=' + NODE)
  const plain = watch('plain=true&log_level=debug&log_include_location=false&server_id=')
  await eventually(() => logger.enabled('trace') && plain.text().includes('text/plain'), 'both listen')
  logger.trace('low', { n: 1 })
  logger.debug('middle')
  await eventually(() => json.lines().length === 2, 'both lines')
  const { '@timestamp': at, ...rest } = JSON.parse(json.lines()[0] ?? '') as Record<string, unknown>
  assert.equal(typeof at, 'string')
  assert.deepEqual(rest, { '@level': 'trace', '@module': 'outpost', '@message': 'low', n: 1 })
  await eventually(() => plain.text().includes('[DEBUG] outpost: middle\n'), 'the plain line')
  assert.ok(!plain.text().includes('low') && !plain.text().includes('{}'))
  const left = Promise.all([json.leave(), plain.leave()])
  // Plain text has no heartbeats, so a disconnection is detected with the next bytes.
  logger.debug('last')
  await left
})

test('a client that does not read loses lines and receives their number, and the log continues', async (t) => {
  const { port, logger } = await startMonitored(t)
  const socket = connect({ port, host: '127.0.0.1' })
  t.after(() => socket.destroy())
  socket.pause()
  socket.write('GET /v1/agent/monitor?plain=true HTTP/1.1\r\nHost: x\r\n\r\n')
  await eventually(() => logger.enabled('info'), 'it listens')
  const filler = 'x'.repeat(8192)
  const sent = 6000
  for (let i = 0; i < sent; i++) {
    logger.info(`line ${i}.`, { filler })
    if (i % 100 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  let text = ''
  // To look for all of the filler in what is full of its letter takes seconds.
  socket.setEncoding('utf8').on('data', (more: string) => (text += more.replaceAll(/x{9,}/g, '')))
  socket.resume()
  await eventually(() => /Monitor dropped \d+ logs/.test(text), 'the dropped lines are reported')
  const dropped = [...text.matchAll(/\[WARN\] {2}outpost\.agent: Monitor dropped (\d+) logs during monitor request\n/g)]
  const lost = dropped.reduce((sum, [, count]) => sum + Number(count), 0)
  await eventually(() => text.split(' line ').length - 1 + lost >= sent, 'told or given, every line')
  const given = text.split(' line ').length - 1
  assert.equal(given + lost, sent)
  assert.ok(given >= 512)
})

test('an invalid request is refused before the head is sent', async (t) => {
  const { port, watch, logger } = await startMonitored(t)
  const refusals: [string, number, string][] = [
    ['log_level=zzz', 400, 'Unknown log level: zzz'],
    [
      'log_include_location=2',
      400,
      'Unknown option for log_include_location: strconv.ParseBool: parsing "2": invalid syntax',
    ],
    [`node_id=${NODE}&server_id=leader`, 400, 'Cannot target node and server simultaneously'],
    ['node_id=other', 404, 'Unknown node "other"'],
    ['server_id=leader', 404, 'this agent cannot monitor servers: omit server_id'],
  ]
  for (const [query, status, text] of refusals) {
    const answer = await ask(port, 'GET', `/v1/agent/monitor?${query}`)
    assert.deepEqual([answer.status, answer.body.toString()], [status, text])
  }
  const watched = Array.from({ length: 16 }, () => watch(''))
  await eventually(() => watched.every(({ text }) => text().includes('{}')), 'as many as there may be')
  const answer = await ask(port, 'GET', '/v1/agent/monitor')
  assert.equal(answer.status, 429)
  await Promise.all(watched.map(({ leave }) => leave()))
  await eventually(() => !logger.enabled('info'), 'the monitor has no listener')
  const closed = await startMonitored(t, { agent: false })
  assert.equal((await ask(closed.port, 'GET', '/v1/agent/monitor')).status, 403)
  assert.equal((await ask(closed.port, 'GET', '/v1/agent/monitor?log_level=zzz')).status, 400)
})
