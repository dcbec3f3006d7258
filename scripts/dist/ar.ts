/** Writes `ar` archives, the outer format of Debian packages. */

const NAME_WIDTH = 16
const FILE_MODE = '100644'

export interface ArMember {
  readonly name: string
  readonly content: Buffer
}

export function arOf(members: readonly ArMember[], modifiedSeconds: number): Buffer {
  const chunks = members.flatMap(({ name, content }) => {
    if (name.length > NAME_WIDTH) throw new Error(`the name ${name} is longer than ${NAME_WIDTH} characters`)
    const fields: readonly (readonly [string, number])[] = [
      [name, NAME_WIDTH],
      [String(modifiedSeconds), 12],
      ['0', 6],
      ['0', 6],
      [FILE_MODE, 8],
      [String(content.length), 10],
    ]
    const header = `${fields.map(([text, width]) => text.padEnd(width)).join('')}\`\n`
    // Members begin at even offsets.
    return [Buffer.from(header), content, Buffer.from(content.length % 2 === 0 ? '' : '\n')]
  })
  return Buffer.concat([Buffer.from('!<arch>\n'), ...chunks])
}
