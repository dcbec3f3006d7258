/** `outpost validate`. */
import { ConfigError, loadConfig } from '../../config/load.ts'
import { readFileSync } from 'node:fs'
import { expiryMsOf, expiryText } from '../../config/tls-files.ts'
import type { Config } from '../../config/config.ts'
import { defineCommand } from '../framework/command-shape.ts'

export const command = defineCommand({
  name: 'validate',
  summary: 'Check configuration files',
  details: [
    'Reads the files and directories as "outpost agent -config" would, merged in the order given, and',
    'prints every fault as file:line:column: message. Exit code 0 when there is none, 1 otherwise.',
    'Nothing is started. Of the files that settings name only certificates are opened, if this user may',
    'read them: one that has expired, or will within 30 days, is a warning.',
  ].join('\n'),
  options: {},
  operands: {
    shown: 'FILE|DIR...',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    missing: 'which files? give them as in: outpost validate agent.hcl',
  },
  async run(_values, operands, io, parts) {
    const checkPolicy = await parts.policyChecker?.()
    try {
      const { config, warnings } = loadConfig({ paths: operands, ...(checkPolicy ? { checkPolicy } : {}) })
      for (const warning of [...warnings, ...expiryWarnings(config)]) io.err(`warning: ${warning}\n`)
      io.out('The configuration is valid\n')
      return 0
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      io.err(`${error.message}\n`)
      return 1
    }
  },
})

function expiryWarnings({ nats, secrets, tls }: Config): string[] {
  const files = {
    'tls.cert_file': tls.certFile,
    'nats.cert_file': nats?.certFile,
    'secrets.cert_file': secrets?.address?.certFile,
  }
  return Object.entries(files).flatMap(([setting, file]) => {
    const expiryMs = file === undefined ? undefined : expiryMsOf(textOf(file))
    const text = expiryMs === undefined ? undefined : expiryText(expiryMs, Date.now())
    return text === undefined ? [] : [`${setting}: the certificate in ${file} ${text}`]
  })
}

/** Empty for a file that cannot be read: it may be another user's, or on another host. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
