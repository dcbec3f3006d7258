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
    'Reads files and directories as "outpost agent -config" does, merges them in the order given, and prints',
    'every error as file:line:column: message. Exit code 0: valid; 1: invalid.',
    '',
    'TLS files (cert_file, key_file, ca_file) must exist, be readable by this user and match each other. A',
    'certificate that has expired or expires within 30 days is a warning. Other files that the configuration',
    'names are not opened.',
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
      const checks = { tlsFiles: { isStarting: false }, ...(checkPolicy ? { checkPolicy } : {}) }
      const { config, warnings } = loadConfig({ paths: operands, ...checks })
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

/** Empty for a file that cannot be read: a credential of the service. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
