/**
 * What an answer of AWS may be. Its endpoint is configured: it may be another machine, a proxy, or taken over. An answer is read
 * whole before the SDK sees it, within bounds of size and time (the SDK has none once the head has come), and a document type,
 * which AWS never sends, is refused: entities could make megabytes of a few bytes.
 */
/** AWS's pages of a hundred things have some fifty kilobytes, and a thousand elements, eight within each other. */
const ANSWER_BYTES_MAX = 256 * 1024
const ELEMENTS_MAX = 10_000
const DEPTH_MAX = 64
const [LESS, GREATER, SLASH, MARK, QUOTE, APOSTROPHE] = [0x3c, 0x3e, 0x2f, 0x21, 0x22, 0x27]

/** An answer that AWS would not give: what was asked for may have been done. */
export class StrangeAnswer extends Error {
  override readonly name = 'StrangeAnswer'
}

/** Reads a body. Rejects with an Error for one that is too long, takes too long, or is no such document. */
export async function readAnswer(body: AsyncIterable<Uint8Array>, limitMs: number): Promise<Uint8Array> {
  const reader = body[Symbol.asyncIterator]()
  const late = Promise.withResolvers<never>()
  const why = `the answer did not end within ${limitMs / 1000} s`
  const timer = setTimeout(() => late.reject(new StrangeAnswer(why)), limitMs)
  const chunks: Uint8Array[] = []
  let length = 0
  try {
    for (;;) {
      const next = await Promise.race([reader.next(), late.promise])
      if (next.done === true) break
      chunks.push(next.value)
      length += next.value.length
      if (length > ANSWER_BYTES_MAX) throw new StrangeAnswer(`the answer has more than ${ANSWER_BYTES_MAX} bytes`)
    }
  } finally {
    clearTimeout(timer)
    // Ends the connection where the answer is not over.
    void reader.return?.()
  }
  const whole = Buffer.concat(chunks)
  checkDocument(whole)
  return whole
}

/** Throws a StrangeAnswer. Counts a tag that ends itself only at its end: `/>` may also be in a text or in an attribute. */
function checkDocument(bytes: Uint8Array): void {
  let [depth, elements, isTag, quote] = [0, 0, false, 0]
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (isTag && byte !== LESS) {
      if (quote !== 0) quote = byte === quote ? 0 : quote
      else if (byte === QUOTE || byte === APOSTROPHE) quote = byte
      else if (byte === GREATER) {
        isTag = false
        if (bytes[at - 1] === SLASH) depth--
      }
    }
    if (byte !== LESS) continue
    ;[isTag, quote] = [true, 0]
    const next = bytes[at + 1]
    if (next === MARK) throw new StrangeAnswer('the answer has a document type, or a comment')
    depth += next === SLASH ? -1 : 1
    if (++elements > 2 * ELEMENTS_MAX) throw new StrangeAnswer('the answer has too many elements')
    if (depth > DEPTH_MAX) throw new StrangeAnswer('the answer has too many elements within each other')
  }
}
