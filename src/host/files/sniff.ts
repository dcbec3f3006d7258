/**
 * MIME type of a file's first bytes by the WHATWG "MIME Sniffing" standard (§7 and the tables of §6), reduced to the
 * signatures that matter for files of a task. HTML and XML are reported as such; `content.ts` makes them safe for browsers.
 */

/** Bytes that the standard examines. */
export const SNIFF_BYTES = 512

// biome-ignore format: a list reads better in rows
const MARKUP = [
  '<!DOCTYPE HTML', '<HTML', '<HEAD', '<SCRIPT', '<IFRAME', '<H1', '<DIV', '<FONT', '<TABLE', '<A', '<STYLE', '<TITLE',
  '<B', '<BODY', '<BR', '<P', '<!--',
] // biome-ignore format: a list reads better in rows

const SIGNATURES: readonly (readonly [string, string])[] = [
  ['89504e470d0a1a0a', 'image/png'],
  ['ffd8ff', 'image/jpeg'],
  ['474946383761', 'image/gif'],
  ['474946383961', 'image/gif'],
  ['424d', 'image/bmp'],
  ['00000100', 'image/x-icon'],
  ['00000200', 'image/x-icon'],
  ['255044462d', 'application/pdf'],
  ['252150532d41646f62652d', 'application/postscript'],
  ['1f8b08', 'application/x-gzip'],
  ['504b0304', 'application/zip'],
  ['526172211a0700', 'application/x-rar-compressed'],
  ['526172211a070100', 'application/x-rar-compressed'],
  ['0061736d', 'application/wasm'],
  ['4f67675300', 'application/ogg'],
  ['4d54686400000006', 'audio/midi'],
  ['494433', 'audio/mpeg'],
  ['1a45dfa3', 'video/webm'],
  ['774f4646', 'font/woff'],
  ['774f4632', 'font/woff2'],
  ['4f54544f', 'font/otf'],
  ['00010000', 'font/ttf'],
]

const PLAIN = 'text/plain; charset=utf-8'
const BINARY = 'application/octet-stream'

/** MIME type of content that begins with `head`; at most the first 512 bytes are examined. */
export function sniffContentType(head: Uint8Array): string {
  const bytes = Buffer.from(head.buffer, head.byteOffset, Math.min(head.length, SNIFF_BYTES))
  return markupType(bytes) ?? signatureType(bytes) ?? textOrBinary(bytes)
}

/** Content type of a file by its name and first bytes; `head` is undefined if the content must not be read. */
export function fileContentType(name: string, head: Uint8Array | undefined): string {
  if (name.endsWith('.json')) return 'application/json'
  return head === undefined || head.length === 0 ? BINARY : sniffContentType(head)
}

function markupType(bytes: Buffer): string | undefined {
  let start = 0
  while (start < bytes.length && [0x09, 0x0a, 0x0c, 0x0d, 0x20].includes(bytes[start] ?? 0)) start++
  const text = bytes.toString('latin1', start, start + 16).toUpperCase()
  if (text.startsWith('<?XML')) return 'text/xml; charset=utf-8'
  for (const tag of MARKUP) {
    if (!text.startsWith(tag)) continue
    const next = text[tag.length]
    if (tag === '<!--' || next === ' ' || next === '>') return 'text/html; charset=utf-8'
  }
  return undefined
}

function signatureType(bytes: Buffer): string | undefined {
  const hex = bytes.toString('hex', 0, 16)
  for (const [signature, type] of SIGNATURES) if (hex.startsWith(signature)) return type
  if (hex.startsWith('52494646')) {
    if (bytes.toString('latin1', 8, 14) === 'WEBPVP') return 'image/webp'
    if (bytes.toString('latin1', 8, 12) === 'WAVE') return 'audio/wave'
    if (bytes.toString('latin1', 8, 12) === 'AVI ') return 'video/avi'
  }
  if (bytes.toString('latin1', 4, 8) === 'ftyp' && bytes.toString('latin1', 8, 11) === 'mp4') return 'video/mp4'
  if (hex.startsWith('feff')) return 'text/plain; charset=utf-16be'
  if (hex.startsWith('fffe')) return 'text/plain; charset=utf-16le'
  return hex.startsWith('efbbbf') ? PLAIN : undefined
}

/** Binary when any byte is a control character that no text holds. */
function textOrBinary(bytes: Buffer): string {
  for (const byte of bytes) {
    if (byte <= 0x08 || byte === 0x0b || (byte >= 0x0e && byte <= 0x1a) || (byte >= 0x1c && byte <= 0x1f)) return BINARY
  }
  return PLAIN
}
