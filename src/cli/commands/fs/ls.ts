/** `outpost fs ls`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { allocationId, allocOptions } from '../../client/alloc-argument.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { fileCells, fileFacts } from '../../client/file-facts.ts'
import { requestJson } from '../../client/http-client.ts'
import { flag } from '../../framework/options.ts'
import { formatTable } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'fs ls',
  summary: "List a directory of an allocation's files",
  details: [
    'PATH begins at the allocation directory, which holds alloc/ (with alloc/logs and alloc/data) and one',
    'directory for each task; it is listed when PATH is left out.',
  ].join('\n'),
  options: { H: flag('Sizes in KiB, MiB and so on'), json: jsonOption, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC [PATH]', min: 1, max: 2, missing: 'which allocation? give its ID or the beginning of it' },
  async run(values, [given = '', path = '/'], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const files = await requestJson(target, { path: `/v1/client/fs/ls/${id}`, query: { path } })
    if (!Array.isArray(files)) throw new CommandError(`${target.url.origin} answered with no list, is it an agent?`)
    if (values.json) {
      printJson(files, io)
      return 0
    }
    const rows = files.map((file) => fileCells(fileFacts(file), values.H))
    const table = formatTable(['Mode', 'Size', 'Modified', 'Name'], rows, ['left', 'right', 'left', 'left'])
    io.out(fitted(table, terminalOf(1, io.env)))
    return 0
  },
})
