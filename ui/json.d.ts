/** In browsers since 2023 to 2025, but not in the types of es2023. */
interface JSON {
  rawJSON(text: string): unknown
  isRawJSON(value: unknown): boolean
}
