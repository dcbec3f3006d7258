/** What an agent tells of a file, and how it is shown. */
import { type Answer, fieldsOf } from '../output/answer.ts'
import { humanBytes } from '../output/quantities.ts'
import { shownName } from '../framework/shown.ts'

export interface FileFacts {
  readonly name: string
  readonly isDirectory: boolean
  readonly size: number
  /** As Go writes it: `drwxr-xr-x`, `Lrwxrwxrwx`. */
  readonly mode: string
  /** RFC 3339, with the host's offset. */
  readonly modified: string
  readonly contentType: string
}

export function fileFacts(answer: unknown): FileFacts {
  const fields: Answer = fieldsOf(answer)
  return {
    name: fields.text('Name'),
    isDirectory: fields.boolean('IsDir'),
    size: fields.number('Size'),
    mode: fields.text('FileMode'),
    modified: fields.text('ModTime'),
    contentType: fields.text('ContentType'),
  }
}

/** Mode, size, time and name; a directory's name ends with a slash. */
export function fileCells(file: FileFacts, human: boolean): string[] {
  const name = shownName(file.name)
  return [
    file.mode,
    human ? humanBytes(file.size) : String(file.size),
    shownTime(file.modified),
    file.isDirectory ? `${name}/` : name,
  ]
}

/** To the second, with the offset that the agent gave: what its host's clock showed. */
function shownTime(time: string): string {
  const match = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$/.exec(time)
  return match ? `${match[1]} ${match[2]}${match[3] === 'Z' ? 'Z' : match[3]}` : shownName(time)
}
