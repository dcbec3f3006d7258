/** `outpost alloc status`. */
import { allocRoot, dataDirOption } from '../../../supervisor/alloc-directory.ts'
import { allocationDetails, allocationJson, findOne } from '../../client/local-allocations.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { flag } from '../../framework/options.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'alloc status',
  summary: 'Show one allocation of this host',
  details: 'ID may be the beginning of an ID, as long as only one allocation has it. Needs no agent.',
  options: { 'data-dir': dataDirOption, json: flag('Print the manifest as JSON') },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'which allocation? give its ID or the beginning of it' },
  run(values, [id = ''], io) {
    const allocation = findOne(allocRoot(values['data-dir'], io.env), id, io)
    io.out(
      values.json
        ? `${JSON.stringify(allocationJson(allocation), undefined, 2)}\n`
        : fitted(allocationDetails(allocation), terminalOf(1, io.env)),
    )
    return Promise.resolve(0)
  },
})
