/** In browsers since 2023 to 2025, but not in the types of es2023. */
interface JSON {
  /** `source` is the text of a number, a string, a boolean or null. */
  parse(text: string, reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown): unknown
  rawJSON(text: string): unknown
  isRawJSON(value: unknown): boolean
}
