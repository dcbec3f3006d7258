// Health check of the container: exits with 0 if the agent or server of this container responds.
import { readFileSync } from 'node:fs'
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'

const TIMEOUT_MS = 4000
const HEALTHY_BELOW_STATUS = 500

const directory = process.env.OUTPOST_DATA_DIR ?? '/var/lib/outpost'
const url = new URL('/v1/agent/health', addressOf(`${directory}/http.addr`))
const request = url.protocol === 'https:' ? requestHttps : requestHttp
// The certificate names the host for clients, not this connection of the container to itself.
const sent = request(url, { rejectUnauthorized: false, timeout: TIMEOUT_MS }, (answer) => {
  process.exit(answer.statusCode !== undefined && answer.statusCode < HEALTHY_BELOW_STATUS ? 0 : 1)
})
sent.on('timeout', () => sent.destroy(new Error(`no response from ${url.href} within ${TIMEOUT_MS} ms`)))
sent.on('error', (error) => {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
})
sent.end()

/** The file exists while the process listens. */
function addressOf(file) {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (error) {
    process.stderr.write(`outpost does not listen: ${error.message}\n`)
    process.exit(1)
  }
}
