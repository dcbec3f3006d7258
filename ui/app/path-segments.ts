/** Decoded segments of a path below `/ui`: a segment may contain an encoded slash, as the path of a mount does. */
export function segmentsOf(path: string): readonly string[] {
  return path
    .split('/')
    .filter((segment) => segment !== '')
    .map(decoded)
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

/** The parts of a list that a user types: separated by commas, white space or line ends. */
export function listOf(text: string): readonly string[] {
  return [...new Set(text.split(/[\s,]+/).filter((part) => part !== ''))]
}

/** A path without slashes at its ends. */
export function trimSlashes(path: string): string {
  return path.replaceAll(/^\/+|\/+$/g, '')
}
