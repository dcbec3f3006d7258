/** `outpost validate`. */
import { ConfigError, loadConfig } from '../config/load.ts'
import { defineCommand } from './command-shape.ts'

export const command = defineCommand({
  name: 'validate',
  summary: 'Check configuration files',
  details: [
    'Reads the files and directories as "outpost agent -config" would, merged in the order given, and',
    'prints every fault as file:line:column: message. Exit code 0 when there is none, 1 otherwise.',
    'Nothing is started; the files that the settings name are not opened.',
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
      const { warnings } = loadConfig({ paths: operands, ...(checkPolicy ? { checkPolicy } : {}) })
      for (const warning of warnings) io.err(`warning: ${warning}\n`)
      io.out('The configuration is valid\n')
      return 0
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      io.err(`${error.message}\n`)
      return 1
    }
  },
})
