/** The filter expression of a search: each word occurs in a field of the allocation, without regard to case. */

const FIELDS = ['Name', 'JobID', 'NodeName', 'Namespace', 'ID']
/** Of the language of expressions. */
const WORDS_MAX = 8
const WORD_CHARS_MAX = 100

function escapePattern(text: string): string {
  return text.replaceAll(/[\\^$.|?*+()[\]{}]/g, String.raw`\$&`)
}

/** Undefined without words. */
export function allocationFilter(text: string): string | undefined {
  const words = text.split(/\s+/).filter((word) => word !== '')
  if (words.length === 0) return undefined
  const terms = words.slice(0, WORDS_MAX).map((word) => {
    const pattern = JSON.stringify(`(?i)${escapePattern(word.slice(0, WORD_CHARS_MAX))}`)
    return `(${FIELDS.map((field) => `${field} matches ${pattern}`).join(' or ')})`
  })
  return terms.join(' and ')
}
