/** `outpost validate`. */
import { ConfigError, loadConfig } from '../../config/load.ts'
import { readFileSync } from 'node:fs'
import { expiryMsOf, expiryText } from '../../config/tls-files.ts'
import type { Config } from '../../config/config.ts'
import { defineCommand } from '../framework/define-command.ts'

export const command = defineCommand({
  name: 'validate',
  summary: 'Check configuration files',
  details: [
    'Reads and merges the files and directories like "outpost agent -config" and prints every error as',
    'file:line:column: message. Exit code 0: valid; 1: invalid. Opens the certificates that this user may read',
    'and warns if one has expired or expires within 30 days. Does not open other files that the configuration',
    'refers to.',
  ].join('\n'),
  options: {},
  operands: {
    shown: 'FILE|DIR...',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(_values, operands, io, services) {
    const checkPolicy = await services.policyChecker?.()
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

/** Empty for a file that cannot be read: it may belong to another user or be on another host. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
